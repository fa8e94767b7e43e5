//! candle-transformers' Mistral. Its window is one position too wide, and there is none after the first call, so it
//! serves only where a window hides nothing.

use candle_nn::VarBuilder;
use candle_transformers::models::mistral::{Config, Model};

use super::{Ready, first, rotates_in_part, scales_rope};
use crate::oracle::error::Result;
use crate::oracle::network::Network;
use crate::oracle::settings::{LLAMA, Settings};

pub(in crate::oracle) const DEF: Ready = Ready {
    settings: |config, positions| Ok(Settings::read(config, LLAMA, positions)?),
    lacks: |settings| {
        let window = settings.keys.opt_size("sliding_window")?;
        Ok(first(&[
            (settings.is_cut_by(&[window]), "a window shorter than the sequence"),
            (rotates_in_part(settings)?, "partial_rotary_factor"),
            (scales_rope(settings)?, "rope scaling"),
        ]))
    },
    open,
};

fn open(settings: &Settings, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let config = Config {
        vocab_size: settings.vocabulary,
        hidden_size: settings.hidden,
        intermediate_size: settings.intermediate,
        num_hidden_layers: settings.layers,
        num_attention_heads: settings.heads,
        head_dim: Some(settings.head_dim),
        num_key_value_heads: settings.kv_heads,
        hidden_act: settings.activation,
        max_position_embeddings: settings.positions,
        rms_norm_eps: settings.epsilon,
        rope_theta: settings.rope()?.base,
        sliding_window: None,
        use_flash_attn: false,
    };
    Ok(Box::new(Model::new(&config, tensors.clone())?))
}
