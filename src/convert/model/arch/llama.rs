//! Llama: grouped attention with rotary positions, SiLU-gated MLPs, RMS norms. Also SmolLM2 and TinyLlama.

use super::Architecture;
use super::family::{self, Family};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "llama",
    classes: &["LlamaForCausalLM"],
    model_types: &["llama"],
    marker: None,
    prefixes: family::PREFIXES,
    probe: family::PROBE,
    harmless: family::harmless,
    build: |config, tensors| build(DEF.name, config, tensors),
};

/// A model with Llama's layers and names.
pub(super) fn build(name: &'static str, config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 2048)]);
    let family = Family::read(name, &keys, tensors)?;
    let rotary = family.rotary(&keys)?;
    let attention_bias = keys.bool_or("attention_bias", false)?;
    let mlp_bias = keys.bool_or("mlp_bias", false)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (attention_bias, attention_bias));
        let attention = family.attention(projections, &rotary.rope, None);
        let mlp = family.gated_mlp(tensors, at, mlp_bias);
        family.layer(tensors, at, attention, mlp)
    })
}
