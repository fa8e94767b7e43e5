//! Mistral: Llama's layers behind a window.

use candle_nn::VarBuilder;

use super::family;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{MISTRAL, Settings};
use anemeter_convert::checkpoint::Config;

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, MISTRAL, positions)?;
    let window = settings.window_or_4096()?;
    family::open(&settings, tensors, [false; 3], |_| window)
}
