//! Qwen2: biases on queries, keys and values; upper layers may have a window.

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
    let windows = settings.upper_windows()?;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let decoder = family::decoder(&settings, tensors, |i, at| {
        let projections = family::projections(&settings, at, (true, false))?;
        let attention = family::attention(&settings, projections, &rotary, windows[i]);
        family::layer(&settings, at, attention, family::gated_mlp(&settings, at, false)?)
    })?;
    Ok(Box::new(decoder))
}
