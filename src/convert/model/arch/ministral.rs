//! Ministral 8B: Mistral's layers, some of them behind a window and others not.

use super::family::Family;
use super::{Architecture, llama, windowed};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "ministral",
    classes: &["MinistralForCausalLM"],
    model_types: &["ministral"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 131_072)]);
    let family = Family::read(DEF.name, &keys, tensors)?;
    let rotary = family.rotary(&keys)?;
    let window = keys.size_unless_null("sliding_window", 4096)?.map(|size| size.value);
    let windowed = windowed(&keys, family.layers, |_| true)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, i, at| {
        let projections = family.projections(tensors, at, (false, false));
        let attention = family.attention(projections, &rotary.rope, window.filter(|_| windowed[i]));
        let mlp = family.gated_mlp(tensors, at, false);
        family.layer(tensors, at, attention, mlp)
    })
}
