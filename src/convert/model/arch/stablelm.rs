//! StableLM: Llama's layers with layer norms and partly rotated heads; attention and MLP may see the same input.

use super::family::Family;
use super::rotary::{Defaults, USUAL};
use super::{Architecture, llama};
use crate::checkpoint::Config;
use crate::model::graph::{Decoder, Layer, NormKind, Residual};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "stablelm",
    classes: &["StableLmForCausalLM"],
    model_types: &["stablelm"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 4096)]);
    if keys.bool_or("qk_layernorm", false)? {
        return Err(keys.wrong(
            "qk_layernorm",
            "is true, but norms with weights of their own per head are not supported",
        ));
    }
    let family = Family {
        epsilon: keys.epsilon("layer_norm_eps", 1e-5)?,
        norm_kind: NormKind::Layer,
        norm_bias: true,
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let rotary = family.rotary_or(&keys, Defaults { partial: 0.25, ..USUAL })?;
    let bias = keys.bool_or("use_qkv_bias", false)?;
    let is_parallel = keys.bool_or("use_parallel_residual", false)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (bias, false));
        let attention = family.attention(projections, &rotary.rope, None);
        let mlp = family.gated_mlp(tensors, at, false);
        match is_parallel {
            true => Layer {
                attention_norm: Some(family.norm(tensors, &format!("{at}.input_layernorm"), &family.hidden)),
                mixer: attention.into(),
                post_attention_norm: None,
                mlp_norm: None,
                mlp,
                post_mlp_norm: None,
                residual: Residual::Parallel,
                per_layer: None,
                scale: 1.0,
            },
            false => family.layer(tensors, at, attention, mlp),
        }
    })
}
