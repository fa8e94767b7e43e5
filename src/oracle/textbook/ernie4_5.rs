//! Ernie 4.5: Llama's layers, rotated by neighbours.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("max_position_embeddings", 131_072.0),
    ("head_dim", 128.0),
    ("rms_norm_eps", 1e-5),
    ("rope_theta", 500_000.0),
    ("tie_word_embeddings", 1.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let bias = settings.keys.flag("use_bias")?;
    let rotary = Rc::new(Rotary::of_neighbours(&settings.rope()?, positions)?);
    let decoder = family::decoder(&settings, tensors, |_, at| {
        let projections = family::projections(&settings, at, (bias, bias))?;
        let attention = family::attention(&settings, projections, &rotary, None);
        family::layer(&settings, at, attention, family::gated_mlp(&settings, at, bias)?)
    })?;
    Ok(Box::new(decoder))
}
