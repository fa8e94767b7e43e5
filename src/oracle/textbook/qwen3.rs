//! Qwen3: a norm of each query and key head; upper layers may have a window.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::{Attention, rms};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{QWEN3, Settings};
use anemeter_convert::checkpoint::Config;

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, QWEN3, positions)?;
    let windows = settings.upper_windows()?;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let bias = settings.attention_bias;
    let decoder = family::decoder(&settings, tensors, |i, at| {
        let norm = |name: &str| rms(settings.head_dim, settings.epsilon, &at.pp("self_attn").pp(name));
        let projections = family::projections(&settings, at, (bias, bias))?;
        let attention = Attention {
            query_norm: Some(norm("q_norm")?),
            key_norm: Some(norm("k_norm")?),
            ..family::attention(&settings, projections, &rotary, windows[i])
        };
        family::layer(&settings, at, attention, family::gated_mlp(&settings, at, false)?)
    })?;
    Ok(Box::new(decoder))
}
