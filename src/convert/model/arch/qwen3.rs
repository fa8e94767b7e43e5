//! Qwen3: Llama's layers with a norm of each query and key head, whose width is a key of its own.

use super::family::Family;
use super::{Architecture, llama, qwen2};
use crate::checkpoint::Config;
use crate::model::graph::{Attention, Decoder};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "qwen3",
    classes: &["Qwen3ForCausalLM"],
    model_types: &["qwen3"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 32_768), ("head_dim", 128)]);
    let family = Family::read(DEF.name, &keys, tensors)?;
    let rotary = family.rotary(&keys)?;
    let windows = qwen2::windows(&keys, family.layers)?;
    let bias = keys.bool_or("attention_bias", false)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, i, at| {
        let projections = family.projections(tensors, at, (bias, bias));
        let attention = Attention {
            query_norm: Some(family.norm(tensors, &format!("{at}.self_attn.q_norm"), &family.head_dim)),
            key_norm: Some(family.norm(tensors, &format!("{at}.self_attn.k_norm"), &family.head_dim)),
            ..family.attention(projections, &rotary.rope, windows[i])
        };
        let mlp = family.gated_mlp(tensors, at, false);
        family.layer(tensors, at, attention, mlp)
    })
}
