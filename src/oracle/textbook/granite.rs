//! Granite: multipliers of embeddings, scores, what layers add, and logits.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::{Attention, Heads, Layer};
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
    let keys = &settings.keys;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let (bias, mlp_bias) = (settings.attention_bias, keys.flag("mlp_bias")?);
    let (scale, added) = (keys.number("attention_multiplier")?, keys.number("residual_multiplier")?);
    let mut decoder = family::decoder(&settings, tensors, |_, at| {
        let projections = family::projections(&settings, at, (bias, bias))?;
        let plain = family::attention(&settings, projections, &rotary, None);
        let attention = Attention { shape: Heads { scale, ..plain.shape }, ..plain };
        let layer = family::layer(&settings, at, attention, family::gated_mlp(&settings, at, mlp_bias)?)?;
        Ok(Layer { added, ..layer })
    })?;
    decoder.embedding_scale = keys.number("embedding_multiplier")?;
    decoder.logit_scale = 1.0 / keys.number("logits_scaling")?;
    Ok(Box::new(decoder))
}
