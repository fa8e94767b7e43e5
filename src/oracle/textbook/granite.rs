//! Granite: multipliers of embeddings, scores, what layers add, and logits. Granite 4 has its gates in one matrix, and may
//! have no positions.

use std::rc::Rc;

use candle_core::{Module, Result as CandleResult};
use candle_nn::{Linear, VarBuilder, linear_no_bias};

use super::decoder::{Attention, GatedMlp, Heads, Layer};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("max_position_embeddings", 2048.0),
    ("embedding_multiplier", 1.0),
    ("attention_multiplier", 1.0),
    ("residual_multiplier", 1.0),
    ("logits_scaling", 1.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let mlp_bias = settings.keys.flag("mlp_bias")?;
    open_with(&settings, tensors, true, |at| family::gated_mlp(&settings, at, mlp_bias))
}

pub(crate) fn open_4(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let (narrow, wide) = (settings.hidden, settings.keys.size("shared_intermediate_size")?);
    let is_rotated = settings.keys.text("position_embedding_type")? == Some("rope");
    open_with(&settings, tensors, is_rotated, |at| {
        let at = at.pp("shared_mlp");
        let both = at.get((2 * wide, narrow), "input_linear.weight")?;
        let half = |first: usize| both.narrow(0, first, wide)?.contiguous();
        Ok(Box::new(GatedMlp {
            gate: Linear::new(half(0)?, None),
            up: Linear::new(half(wide)?, None),
            down: linear_no_bias(wide, narrow, at.pp("output_linear"))?,
            activation: settings.activation,
        }))
    })
}

fn open_with(
    settings: &Settings,
    tensors: &VarBuilder<'_>,
    is_rotated: bool,
    mlp: impl Fn(&VarBuilder<'_>) -> CandleResult<Box<dyn Module>>,
) -> Result<Box<dyn Network>> {
    let keys = &settings.keys;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, settings.positions)?);
    let bias = settings.attention_bias;
    let (scale, added) = (keys.number("attention_multiplier")?, keys.number("residual_multiplier")?);
    let mut decoder = family::decoder(settings, tensors, |_, at| {
        let projections = family::projections(settings, at, (bias, bias))?;
        let plain = family::attention(settings, projections, &rotary, None);
        let attention = Attention {
            rotary: is_rotated.then(|| rotary.clone()),
            shape: Heads { scale, ..plain.shape },
            ..plain
        };
        let layer = family::layer(settings, at, attention, mlp(at)?)?;
        Ok(Layer { added, ..layer })
    })?;
    decoder.embedding_scale = keys.number("embedding_multiplier")?;
    decoder.logit_scale = 1.0 / keys.number("logits_scaling")?;
    Ok(Box::new(decoder))
}
