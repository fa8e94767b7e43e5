//! candle-transformers' Phi-3. It multiplies frequencies by the factors that should divide them, and has no windows.

use candle_nn::VarBuilder;
use candle_transformers::models::phi3::{Config, Model};

use super::{Ready, first, scales_rope, wide_heads};
use crate::oracle::error::Result;
use crate::oracle::network::Network;
use crate::oracle::settings::{PHI3, Settings};

pub(in crate::oracle) const DEF: Ready = Ready {
    settings: |config, positions| Ok(Settings::read(config, PHI3, positions)?),
    lacks: |settings| {
        let window = settings.keys.opt_size("sliding_window")?;
        Ok(first(&[
            (settings.is_cut_by(&[window]), "a window shorter than the sequence"),
            (wide_heads(settings), "head_dim"),
            (scales_rope(settings)?, "rope scaling"),
        ]))
    },
    open,
};

fn open(settings: &Settings, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let rope = settings.rope()?;
    let config = Config {
        vocab_size: settings.vocabulary,
        hidden_act: settings.activation,
        hidden_size: settings.hidden,
        intermediate_size: settings.intermediate,
        num_hidden_layers: settings.layers,
        num_attention_heads: settings.heads,
        num_key_value_heads: settings.kv_heads,
        rms_norm_eps: settings.epsilon,
        rope_theta: rope.base,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: settings.positions,
        original_max_position_embeddings: None,
        partial_rotary_factor: Some(rope.dims as f64 / settings.head_dim as f64),
        tie_word_embeddings: settings.tied,
    };
    Ok(Box::new(Model::new(&config, tensors.clone())?))
}
