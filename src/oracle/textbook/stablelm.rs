//! StableLM: layer norms, a quarter of each head rotated, attention and MLP one after the other or side by side.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::{Layer, centred_and_shifted};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults =
    &[("max_position_embeddings", 4096.0), ("layer_norm_eps", 1e-5), ("partial_rotary_factor", 0.25)];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let keys = &settings.keys;
    let (hidden, epsilon) = (settings.hidden, keys.number("layer_norm_eps")?);
    let (bias, is_parallel) = (keys.flag("use_qkv_bias")?, keys.flag("use_parallel_residual")?);
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let mut decoder = family::decoder(&settings, tensors, |_, at| {
        let norm = |name: &str| centred_and_shifted(hidden, epsilon, &at.pp(name)).map(Some);
        let projections = family::projections(&settings, at, (bias, false))?;
        Ok(Layer {
            attention_norm: norm("input_layernorm")?,
            mixer: Box::new(family::attention(&settings, projections, &rotary, None)),
            post_attention_norm: None,
            mlp_norm: if is_parallel { None } else { norm("post_attention_layernorm")? },
            mlp: family::gated_mlp(&settings, at, false)?,
            post_mlp_norm: None,
            is_parallel,
            added: 1.0,
        })
    })?;
    decoder.norm = centred_and_shifted(hidden, epsilon, &tensors.pp("model.norm"))?;
    Ok(Box::new(decoder))
}
