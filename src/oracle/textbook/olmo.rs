//! OLMo 2 and 3: norms after attention and MLP, one norm of all query heads and one of all key heads; OLMo 3 with windows.

use std::rc::Rc;

use candle_nn::VarBuilder;

use super::decoder::{Attention, Layer, rms};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Keys, Rope, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[("max_position_embeddings", 2048.0), ("rms_norm_eps", 1e-5)];
const DEFAULTS_3: Defaults =
    &[("max_position_embeddings", 2048.0), ("rms_norm_eps", 1e-5), ("rope_theta", 500_000.0)];

pub(crate) fn open_2(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    open(&settings, tensors, |_| (&rotary, None))
}

pub(crate) fn open_3(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS_3, positions)?;
    let window = settings.window_or_4096()?;
    // Every fourth layer sees everything, and it alone has what is done for long contexts.
    let is_windowed = settings.windowed(|layer| layer % 4 != 3)?;
    let (local, global) = match settings.keys.section("rope_parameters")? {
        Some(kinds) => (kinds.section("sliding_attention")?, kinds.section("full_attention")?),
        None => (None, settings.keys.section("rope_scaling")?),
    };
    let base = settings.keys.number("rope_theta")?;
    let rotary = |section: Option<&Keys>| -> Result<Rc<Rotary>> {
        Ok(Rc::new(Rotary::new(&Rope::read(&settings, section, base)?, positions)?))
    };
    let (local, global) = (rotary(local.as_ref())?, rotary(global.as_ref())?);
    open(&settings, tensors, |layer| match is_windowed[layer] {
        true => (&local, window),
        false => (&global, None),
    })
}

/// The model, given the rotation and the window of each layer.
fn open<'r>(
    settings: &Settings,
    tensors: &VarBuilder<'_>,
    sees: impl Fn(usize) -> (&'r Rc<Rotary>, Option<usize>),
) -> Result<Box<dyn Network>> {
    let Settings { hidden, heads, kv_heads, head_dim, epsilon, attention_bias: bias, .. } = *settings;
    let decoder = family::decoder(settings, tensors, |i, at| {
        let norm = |width: usize, name: &str| rms(width, epsilon, &at.pp(name));
        let projections = family::projections(settings, at, (bias, bias))?;
        let (rotary, window) = sees(i);
        let attention = Attention {
            query_norm: Some(norm(heads * head_dim, "self_attn.q_norm")?),
            key_norm: Some(norm(kv_heads * head_dim, "self_attn.k_norm")?),
            ..family::attention(settings, projections, rotary, window)
        };
        Ok(Layer {
            attention_norm: None,
            mixer: Box::new(attention),
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
