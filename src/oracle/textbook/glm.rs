//! GLM 4: half of each head rotated by neighbours, fused gates; since 2025 with norms after attention and MLP, too.

use std::rc::Rc;

use candle_nn::{Linear, VarBuilder, linear_no_bias};

use super::decoder::{GatedMlp, Layer, rms};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("max_position_embeddings", 131_072.0),
    ("head_dim", 128.0),
    ("rms_norm_eps", 1.5625e-7),
    ("partial_rotary_factor", 0.5),
    ("attention_bias", 1.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    open_with(config, positions, tensors, false)
}

pub(crate) fn open_4(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
) -> Result<Box<dyn Network>> {
    open_with(config, positions, tensors, true)
}

fn open_with(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
    has_post_norms: bool,
) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let Settings { hidden, intermediate, epsilon, activation, attention_bias, .. } = settings;
    let rotary = Rc::new(Rotary::of_neighbours(&settings.rope()?, positions)?);
    let decoder = family::decoder(&settings, tensors, |_, at| {
        let post = |name: &str| has_post_norms.then(|| rms(hidden, epsilon, &at.pp(name))).transpose();
        let projections = family::projections(&settings, at, (attention_bias, false))?;
        let fused = at.get((2 * intermediate, hidden), "mlp.gate_up_proj.weight")?;
        let half = |first: usize| fused.narrow(0, first, intermediate)?.contiguous();
        let mlp = GatedMlp {
            gate: Linear::new(half(0)?, None),
            up: Linear::new(half(intermediate)?, None),
            down: linear_no_bias(intermediate, hidden, at.pp("mlp.down_proj"))?,
            activation,
        };
        let attention = family::attention(&settings, projections, &rotary, None);
        let layer = family::layer(&settings, at, attention, Box::new(mlp))?;
        Ok(Layer {
            post_attention_norm: post("post_self_attn_layernorm")?,
            post_mlp_norm: post("post_mlp_layernorm")?,
            ..layer
        })
    })?;
    Ok(Box::new(decoder))
}
