//! Cohere 2: one norm before attention and MLP, windows with rotation, the other layers without either, scaled logits.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::{Attention, Layer, centred};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("max_position_embeddings", 8192.0),
    ("sliding_window_pattern", 4.0),
    ("layer_norm_eps", 1e-5),
    ("logit_scale", 0.0625),
    ("tie_word_embeddings", 1.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let keys = &settings.keys;
    let (hidden, epsilon) = (settings.hidden, keys.number("layer_norm_eps")?);
    let pattern = keys.size("sliding_window_pattern")?.max(1);
    let (window, is_local) =
        (settings.window_or_4096()?, settings.windowed(|layer| (layer + 1) % pattern != 0)?);
    let rotary = Rc::new(Rotary::of_neighbours(&settings.rope()?, positions)?);
    let bias = settings.attention_bias;
    let mut decoder = family::decoder(&settings, tensors, |i, at| {
        let projections = family::projections(&settings, at, (bias, bias))?;
        let window = if is_local[i] { window } else { None };
        let attention = Attention {
            rotary: window.map(|_| rotary.clone()),
            ..family::attention(&settings, projections, &rotary, window)
        };
        Ok(Layer {
            attention_norm: Some(centred(hidden, epsilon, &at.pp("input_layernorm"))?),
            mixer: Box::new(attention),
            post_attention_norm: None,
            mlp_norm: None,
            mlp: family::gated_mlp(&settings, at, false)?,
            post_mlp_norm: None,
            is_parallel: true,
            added: 1.0,
        })
    })?;
    decoder.norm = centred(hidden, epsilon, &tensors.pp("model.norm"))?;
    decoder.logit_scale = keys.number("logit_scale")?;
    Ok(Box::new(decoder))
}
