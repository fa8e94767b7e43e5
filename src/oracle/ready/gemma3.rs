//! candle-transformers' Gemma 3. Its windows are one position too wide, its scores are scaled by the heads' width
//! whatever `query_pre_attn_scalar` says, and its cache takes a prompt only if keys and values have one head.

use candle_nn::VarBuilder;
use candle_transformers::models::gemma3::{Config, Model};

use super::{Ready, first};
use crate::oracle::error::Result;
use crate::oracle::network::Network;
use crate::oracle::settings::{Scaling, Settings};

pub(in crate::oracle) const DEF: Ready = Ready {
    settings: |config, positions| Ok(Settings::gemma3(config, positions)?),
    lacks: |settings| {
        let window = settings.keys.opt_size("sliding_window")?;
        let ropes = settings.local_and_global_rope()?;
        let pattern = pattern(settings)?;
        let regular = |(i, local): (usize, bool)| local == ((i + 1) % pattern != 0);
        Ok(first(&[
            (settings.is_cut_by(&[window]), "a window shorter than the sequence"),
            (settings.kv_heads > 1, "prompts for several key-value heads"),
            (ropes.iter().any(|rope| rope.scaling != Scaling::None), "rope scaling"),
            (ropes.iter().any(|rope| rope.dims != settings.head_dim), "partial_rotary_factor"),
            (settings.keys.size("query_pre_attn_scalar")? != settings.head_dim, "query_pre_attn_scalar"),
            (!settings.tied, "a head of its own"),
            (!settings.local_layers()?.into_iter().enumerate().all(regular), "these layer_types"),
        ]))
    },
    open,
};

/// Every how many layers one sees everything, as the first that does tells.
fn pattern(settings: &Settings) -> Result<usize> {
    let global = settings.local_layers()?.iter().position(|&local| !local);
    Ok(global.map_or(settings.layers + 1, |layer| layer + 1))
}

fn open(settings: &Settings, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let [local, global] = settings.local_and_global_rope()?;
    let config = Config {
        attention_bias: settings.attention_bias,
        head_dim: settings.head_dim,
        hidden_activation: settings.activation,
        hidden_size: settings.hidden,
        intermediate_size: settings.intermediate,
        num_attention_heads: settings.heads,
        num_hidden_layers: settings.layers,
        num_key_value_heads: settings.kv_heads,
        rms_norm_eps: settings.epsilon,
        rope_theta: global.base,
        rope_local_base_freq: local.base,
        vocab_size: settings.vocabulary,
        final_logit_softcapping: settings.keys.opt_number("final_logit_softcapping")?,
        attn_logit_softcapping: None,
        query_pre_attn_scalar: settings.head_dim,
        sliding_window: settings.positions,
        sliding_window_pattern: pattern(settings)?,
        max_position_embeddings: settings.positions,
    };
    Ok(Box::new(Model::new(false, &config, tensors.clone())?))
}
