//! candle-transformers' Qwen2. It gives every layer the same window, and none after the first call, so it serves only
//! where a window hides nothing.

use candle_nn::VarBuilder;
use candle_transformers::models::qwen2::{Config, ModelForCausalLM};

use super::{Ready, first, rotates_in_part, scales_rope, wide_heads};
use crate::oracle::error::Result;
use crate::oracle::network::Network;
use crate::oracle::settings::{LLAMA, Settings};

pub(in crate::oracle) const DEF: Ready = Ready {
    settings: |config, positions| Ok(Settings::read(config, LLAMA, positions)?),
    lacks: |settings| {
        Ok(first(&[
            (settings.is_cut_by(&settings.upper_windows()?), "a window shorter than the sequence"),
            (wide_heads(settings), "head_dim"),
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
        num_key_value_heads: settings.kv_heads,
        max_position_embeddings: settings.positions,
        sliding_window: settings.positions,
        max_window_layers: settings.layers,
        tie_word_embeddings: settings.tied,
        rope_theta: settings.rope()?.base,
        rms_norm_eps: settings.epsilon,
        use_sliding_window: false,
        hidden_act: settings.activation,
    };
    Ok(Box::new(ModelForCausalLM::new(&config, tensors.clone())?))
}
