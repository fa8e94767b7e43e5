//! OLMo 2 and 3: norms after attention and MLP, one norm of all query heads and one of all key heads; OLMo 3 with windows.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::{Attention, Layer, rms};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[("max_position_embeddings", 2048.0), ("rms_norm_eps", 1e-5)];

pub(crate) fn open_2(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    open(&settings, tensors, |_| None)
}

pub(crate) fn open_3(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let window = settings.window_or_4096()?;
    // Every fourth layer sees everything.
    let is_windowed = settings.windowed(|layer| layer % 4 != 3)?;
    open(&settings, tensors, |layer| if is_windowed[layer] { window } else { None })
}

fn open(
    settings: &Settings,
    tensors: &VarBuilder<'_>,
    window: impl Fn(usize) -> Option<usize>,
) -> Result<Box<dyn Network>> {
    let rotary = Rc::new(Rotary::new(&settings.rope()?, settings.positions)?);
    let Settings { hidden, heads, kv_heads, head_dim, epsilon, attention_bias: bias, .. } = *settings;
    let decoder = family::decoder(settings, tensors, |i, at| {
        let norm = |width: usize, name: &str| rms(width, epsilon, &at.pp(name));
        let projections = family::projections(settings, at, (bias, bias))?;
        let attention = Attention {
            query_norm: Some(norm(heads * head_dim, "self_attn.q_norm")?),
            key_norm: Some(norm(kv_heads * head_dim, "self_attn.k_norm")?),
            ..family::attention(settings, projections, &rotary, window(i))
        };
        Ok(Layer {
            attention_norm: None,
            attention,
            post_attention_norm: Some(norm(hidden, "post_attention_layernorm")?),
            mlp_norm: None,
            mlp: family::gated_mlp(settings, at, false)?,
            post_mlp_norm: Some(norm(hidden, "post_feedforward_layernorm")?),
            is_parallel: false,
            added: 1.0,
        })
    })?;
    Ok(Box::new(decoder))
}
