//! Mistral: Llama's layers behind a window.

use candle_nn::VarBuilder;

use super::family;
use crate::checkpoint::Config;
use crate::oracle::error::Result;
use crate::oracle::network::Network;
use crate::oracle::settings::{LLAMA, Settings};

pub(in crate::oracle) fn open(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, LLAMA, positions)?;
    let window = settings.keys.opt_size("sliding_window")?;
    family::open(&settings, tensors, [false; 3], |_| window)
}
