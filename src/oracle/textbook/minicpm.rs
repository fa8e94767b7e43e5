//! MiniCPM: embeddings times a number, additions divided by the root of the depth, the head behind a division by width.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::Layer;
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults =
    &[("max_position_embeddings", 32_768.0), ("scale_emb", 12.0), ("tie_word_embeddings", 1.0)];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let keys = &settings.keys;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let (bias, mlp_bias) = (settings.attention_bias, keys.flag("mlp_bias")?);
    let depth = (settings.layers as f64).sqrt();
    let added = keys.number_unless_null("scale_depth", 1.4)?.unwrap_or(depth) / depth;
    let mut decoder = family::decoder(&settings, tensors, |_, at| {
        let projections = family::projections(&settings, at, (bias, bias))?;
        let attention = family::attention(&settings, projections, &rotary, None);
        let layer = family::layer(&settings, at, attention, family::gated_mlp(&settings, at, mlp_bias)?)?;
        Ok(Layer { added, ..layer })
    })?;
    decoder.embedding_scale = keys.number("scale_emb")?;
    let width = settings.hidden as f64;
    decoder.logit_scale = keys.number_unless_null("dim_model_base", 256.0)?.unwrap_or(width) / width;
    Ok(Box::new(decoder))
}
