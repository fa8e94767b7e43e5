//! OLMo 2: norms after attention and MLP instead of before, and a norm of all query heads and of all key heads together.

use super::family::Family;
use super::{Architecture, llama};
use crate::checkpoint::Config;
use crate::model::graph::{Attention, Decoder, Layer, Residual};
use crate::model::keys::{Keys, Result};
use crate::model::rope::Rope;
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "olmo2",
    classes: &["Olmo2ForCausalLM"],
    model_types: &["olmo2"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 2048)]);
    let family = family(DEF.name, &keys, tensors)?;
    let rotary = family.rotary(&keys)?;
    decoder(&family, &keys, tensors, rotary.max_positions, |_| (&rotary.rope, None))
}

pub(super) fn family(name: &'static str, keys: &Keys, tensors: &Tensors<'_>) -> Result<Family> {
    let epsilon = keys.epsilon("rms_norm_eps", 1e-5)?;
    Ok(Family { epsilon, ..Family::read(name, keys, tensors)? })
}

/// The model, given the rotation and the window of each layer.
pub(super) fn decoder<'r>(
    family: &Family,
    keys: &Keys,
    tensors: &mut Tensors<'_>,
    max_positions: usize,
    sees: impl Fn(usize) -> (&'r Rope, Option<usize>),
) -> Result<Decoder> {
    let bias = keys.bool_or("attention_bias", false)?;
    let (query, key) = (family.query_width(), family.key_width());
    family.decoder(keys, tensors, max_positions, |tensors, i, at| {
        let projections = family.projections(tensors, at, (bias, bias));
        let (rope, window) = sees(i);
        let attention = Attention {
            query_norm: Some(family.norm(tensors, &format!("{at}.self_attn.q_norm"), &query)),
            key_norm: Some(family.norm(tensors, &format!("{at}.self_attn.k_norm"), &key)),
            ..family.attention(projections, rope, window)
        };
        let mlp = family.gated_mlp(tensors, at, false);
        let mut norm = |name: &str| Some(family.norm(tensors, &format!("{at}.{name}"), &family.hidden));
        Layer {
            attention_norm: None,
            mixer: attention.into(),
            post_attention_norm: norm("post_attention_layernorm"),
            mlp_norm: None,
            mlp,
            post_mlp_norm: norm("post_feedforward_layernorm"),
            residual: Residual::Sequential,
            per_layer: None,
            scale: 1.0,
        }
    })
}
