//! GLM 4 of 2025 (GLM-4-0414): GLM's layers with norms after attention and MLP as well.

use super::{Architecture, glm, llama};
use crate::model::graph::Layer;

pub(super) const DEF: Architecture = Architecture {
    name: "glm4",
    classes: &["Glm4ForCausalLM"],
    model_types: &["glm4"],
    build: |config, tensors| {
        glm::build(DEF.name, config, tensors, |family, tensors, at, layer| {
            let mut norm = |name: &str| Some(family.norm(tensors, &format!("{at}.{name}"), &family.hidden));
            Layer {
                post_attention_norm: norm("post_self_attn_layernorm"),
                post_mlp_norm: norm("post_mlp_layernorm"),
                ..layer
            }
        })
    },
    ..llama::DEF
};
