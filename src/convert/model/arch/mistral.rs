//! Mistral: Llama's layers without biases, each looking back over a sliding window if there is one.

use super::family::Family;
use super::{Architecture, llama};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "mistral",
    classes: &["MistralForCausalLM"],
    model_types: &["mistral"],
    build,
    ..llama::DEF
};

/// The window where the key is absent; where it is `null` there is none.
const DEFAULT_WINDOW: usize = 4096;

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 131_072)]);
    let family = Family::read(DEF.name, &keys, tensors)?;
    let rotary = family.rotary(&keys)?;
    let window = keys.size_unless_null("sliding_window", DEFAULT_WINDOW)?.map(|size| size.value);
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (false, false));
        let attention = family.attention(projections, &rotary.rope, window);
        let mlp = family.gated_mlp(tensors, at, false);
        family.layer(tensors, at, attention, mlp)
    })
}
