//! Llama, and the student, whose layers and names are the same.

use candle_nn::VarBuilder;

use super::family;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{LLAMA, Settings};
use anemeter_convert::checkpoint::Config;

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, LLAMA, positions)?;
    let (bias, mlp_bias) = (settings.attention_bias, settings.keys.flag("mlp_bias")?);
    family::open(&settings, tensors, [bias, bias, mlp_bias], |_| None)
}
