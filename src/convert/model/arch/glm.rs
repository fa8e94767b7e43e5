//! GLM 4: partly rotated heads whose neighbouring dimensions form pairs, fused gates, biases on queries, keys and values.

use super::family::Family;
use super::rotary::{Defaults, USUAL};
use super::{Architecture, llama};
use crate::checkpoint::Config;
use crate::model::graph::{Decoder, Layer};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "glm",
    classes: &["GlmForCausalLM"],
    model_types: &["glm"],
    build: |config, tensors| build(DEF.name, config, tensors, |_, _, _, layer| layer),
    ..llama::DEF
};

/// A model of GLM's layers, each changed by `change`.
pub(super) fn build(
    name: &'static str,
    config: &Config,
    tensors: &mut Tensors<'_>,
    change: fn(&Family, &mut Tensors<'_>, &str, Layer) -> Layer,
) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 131_072), ("head_dim", 128)]);
    let epsilon = keys.epsilon("rms_norm_eps", 1.5625e-7)?;
    let family = Family { epsilon, ..Family::read(name, &keys, tensors)? };
    let rotary = family.rotary_or(&keys, Defaults { partial: 0.5, ..USUAL })?;
    let bias = keys.bool_or("attention_bias", true)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (bias, false));
        let projections = family.pairs_by_halves(projections, &rotary.rope);
        let attention = family.attention(projections, &rotary.rope, None);
        let mlp = family.fused_mlp(tensors, at);
        let layer = family.layer(tensors, at, attention, mlp);
        change(&family, tensors, at, layer)
    })
}
