//! SmolLM3: Llama's layers, every fourth without rotation.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::Attention;
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("max_position_embeddings", 32_768.0),
    ("rope_theta", 2e6),
    ("no_rope_layer_interval", 4.0),
    ("tie_word_embeddings", 1.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let keys = &settings.keys;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let is_rotated: Vec<bool> = match config.get("no_rope_layers") {
        // One says that a layer is rotated.
        Some(_) => keys.numbers("no_rope_layers")?.into_iter().map(|rotated| rotated == 1.0).collect(),
        None => {
            let interval = keys.size("no_rope_layer_interval")?.max(1);
            (0..settings.layers).map(|layer| layer % interval != interval - 1).collect()
        }
    };
    let is_windowed = settings.windowed(|layer| !is_rotated[layer])?;
    let window = if keys.flag("use_sliding_window")? { keys.opt_size("sliding_window")? } else { None };
    let (bias, mlp_bias) = (settings.attention_bias, keys.flag("mlp_bias")?);
    let decoder = family::decoder(&settings, tensors, |i, at| {
        let projections = family::projections(&settings, at, (bias, bias))?;
        let window = if is_windowed[i] { window } else { None };
        let attention = Attention {
            rotary: is_rotated[i].then(|| rotary.clone()),
            ..family::attention(&settings, projections, &rotary, window)
        };
        family::layer(&settings, at, attention, family::gated_mlp(&settings, at, mlp_bias)?)
    })?;
    Ok(Box::new(decoder))
}
