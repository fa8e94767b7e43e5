//! Gemma 3: scaled embeddings, norms that add one to their weight around everything, local and global layers.

use std::rc::Rc;

use candle_core::Result as CandleResult;
use candle_nn::{LayerNorm, VarBuilder};

use super::decoder::{Attention, Heads, Layer};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::Settings;
use anemeter_convert::checkpoint::Config;

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::gemma3(config, positions)?;
    let [local, global] = settings.local_and_global_rope()?;
    let local = (Rc::new(Rotary::new(&local, positions)?), Some(settings.keys.size("sliding_window")?));
    let global = (Rc::new(Rotary::new(&global, positions)?), None);
    let is_local = settings.local_layers()?;
    let scale = settings.keys.number("query_pre_attn_scalar")?.powf(-0.5);
    let softcap = settings.keys.opt_number("attn_logit_softcapping")?;
    let bias = settings.attention_bias;
    let mut decoder = family::decoder(&settings, tensors, |i, at| {
        let norm = |width: usize, name: &str| plus_one(width, settings.epsilon, &at.pp(name));
        let (rotary, window) = if is_local[i] { &local } else { &global };
        let projections = family::projections(&settings, at, (bias, bias))?;
        let plain = family::attention(&settings, projections, rotary, *window);
        let attention = Attention {
            query_norm: Some(norm(settings.head_dim, "self_attn.q_norm")?),
            key_norm: Some(norm(settings.head_dim, "self_attn.k_norm")?),
            shape: Heads { scale, ..plain.shape },
            softcap,
            ..plain
        };
        Ok(Layer {
            attention_norm: Some(norm(settings.hidden, "input_layernorm")?),
            mixer: Box::new(attention),
            post_attention_norm: Some(norm(settings.hidden, "post_attention_layernorm")?),
            mlp_norm: Some(norm(settings.hidden, "pre_feedforward_layernorm")?),
            mlp: family::gated_mlp(&settings, at, false)?,
            post_mlp_norm: Some(norm(settings.hidden, "post_feedforward_layernorm")?),
            is_parallel: false,
            added: 1.0,
        })
    })?;
    decoder.norm = plus_one(settings.hidden, settings.epsilon, &tensors.pp("model.norm"))?;
    decoder.embedding_scale = (settings.hidden as f64).sqrt();
    decoder.softcap = settings.keys.opt_number("final_logit_softcapping")?;
    Ok(Box::new(decoder))
}

pub(super) fn plus_one(width: usize, epsilon: f64, at: &VarBuilder<'_>) -> CandleResult<LayerNorm> {
    Ok(LayerNorm::rms_norm((at.get(width, "weight")? + 1.0)?, epsilon))
}
