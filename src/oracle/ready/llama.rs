//! candle-transformers' Llama, which serves the student too.

use candle_core::{DType, Device, Result as CandleResult, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, Llama3RopeConfig, Llama3RopeType};

use super::{Ready, first, not_silu, rotates_in_part, wide_heads};
use crate::oracle::error::Result;
use crate::oracle::network::Network;
use crate::oracle::settings::{LLAMA, Scaling, Settings};

pub(in crate::oracle) const DEF: Ready = Ready {
    settings: |config, positions| Ok(Settings::read(config, LLAMA, positions)?),
    lacks: |settings| {
        let other_scaling = !matches!(settings.rope()?.scaling, Scaling::None | Scaling::Llama3 { .. });
        Ok(first(&[
            (settings.attention_bias || settings.keys.flag("mlp_bias")?, "biases"),
            (wide_heads(settings), "head_dim"),
            (not_silu(settings), "hidden_act"),
            (rotates_in_part(settings)?, "partial_rotary_factor"),
            (other_scaling, "this rope scaling"),
        ]))
    },
    open,
};

fn open(settings: &Settings, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let rope = settings.rope()?;
    let rope_scaling = match rope.scaling {
        Scaling::Llama3 { factor, low, high, original } => Some(Llama3RopeConfig {
            factor: factor as f32,
            low_freq_factor: low as f32,
            high_freq_factor: high as f32,
            original_max_position_embeddings: original as usize,
            rope_type: Llama3RopeType::Llama3,
        }),
        _ => None,
    };
    let config = Config {
        hidden_size: settings.hidden,
        intermediate_size: settings.intermediate,
        vocab_size: settings.vocabulary,
        num_hidden_layers: settings.layers,
        num_attention_heads: settings.heads,
        num_key_value_heads: settings.kv_heads,
        use_flash_attn: false,
        rms_norm_eps: settings.epsilon,
        rope_theta: rope.base as f32,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling,
        max_position_embeddings: settings.positions,
        tie_word_embeddings: settings.tied,
    };
    let llama = Llama::load(tensors.clone(), &config)?;
    let fresh = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
    Ok(Box::new(Wrapped { llama, cache: fresh.clone(), fresh }))
}

struct Wrapped {
    llama: Llama,
    cache: Cache,
    fresh: Cache,
}

impl Network for Wrapped {
    fn forward(&mut self, ids: &Tensor, offset: usize) -> CandleResult<Tensor> {
        self.llama.forward(ids, offset, &mut self.cache)
    }

    fn clear(&mut self) {
        self.cache = self.fresh.clone();
    }
}
