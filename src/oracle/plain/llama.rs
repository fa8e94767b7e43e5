//! Llama, and the student, whose layers and names are the same.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::family;
use super::rotary::Rotary;
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
    let mlp_bias = settings.keys.flag("mlp_bias")?;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let bias = settings.attention_bias;
    let decoder = family::decoder(&settings, tensors, |_, at| {
        let projections = family::projections(&settings, at, (bias, bias))?;
        let attention = family::attention(&settings, projections, &rotary, None);
        family::layer(&settings, at, attention, family::gated_mlp(&settings, at, mlp_bias)?)
    })?;
    Ok(Box::new(decoder))
}
