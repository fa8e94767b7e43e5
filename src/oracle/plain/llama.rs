//! Llama, and the student, whose layers and names are the same.

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
    let (bias, mlp_bias) = (settings.attention_bias, settings.keys.flag("mlp_bias")?);
    family::open(&settings, tensors, [bias, bias, mlp_bias], |_| None)
}
