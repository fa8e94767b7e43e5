//! Ministral 3 and Mistral Small 3: Mistral's layers with YaRN, in checkpoints that may also see images, of which the text
//! model is taken.
//!
//! Beyond the length that it was first trained for, 16384 tokens in the published models, Ministral 3 scales queries by
//! their position.

use super::family::{self, Family};
use super::{Architecture, llama};
use crate::checkpoint::Config;
use crate::model::graph::{Attention, Decoder, QueryGrowth};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::{Prefix, Tensors};

pub(super) const DEF: Architecture = Architecture {
    name: "ministral3",
    classes: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
    model_types: &["ministral3", "mistral3"],
    prefixes: &[
        Prefix { body: "language_model.model.", head: "language_model." },
        Prefix { body: "model.language_model.", head: "" },
        Prefix { body: "model.", head: "" },
        Prefix { body: "", head: "" },
    ],
    harmless: |name| {
        let image_sides = ["vision_tower.", "multi_modal_projector."];
        let inner = name.strip_prefix("model.").unwrap_or(name);
        family::harmless(name) || image_sides.iter().any(|side| inner.starts_with(side))
    },
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let whole = Keys::new(config, &[]);
    // Beside images, the configuration of the whole says whether heads are tied, and published ones leave it out.
    let tied = whole.has("text_config").then(|| !tensors.has_head());
    let keys = whole.section("text_config")?.unwrap_or(whole);
    let keys = keys.with_defaults(&[("max_position_embeddings", 262_144), ("head_dim", 128)]);
    let epsilon = keys.epsilon("rms_norm_eps", 1e-5)?;
    let family = Family { epsilon, tied, ..Family::read(DEF.name, &keys, tensors)? };
    let rotary = family.rotary(&keys)?;
    let growth = growth(&keys)?;
    let window = keys.opt_size("sliding_window")?.map(|size| size.value);
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (false, false));
        let attention = Attention { growth, ..family.attention(projections, &rotary.rope, window) };
        let mlp = family.gated_mlp(tensors, at, false);
        family.layer(tensors, at, attention, mlp)
    })
}

/// How queries grow with their position.
fn growth(keys: &Keys) -> Result<Option<QueryGrowth>> {
    let section = match keys.section("rope_parameters")? {
        Some(section) => Some(section),
        None => keys.section("rope_scaling")?,
    };
    let Some(section) = section else {
        // Mistral Small has a base alone. A default would be a guess at YaRN's numbers.
        let is_plain = keys.has("rope_theta");
        return if is_plain { Ok(None) } else { Err(keys.wrong("rope_parameters", "is missing")) };
    };
    match section.opt_float("llama_4_scaling_beta")? {
        Some(beta) if beta != 0.0 => {
            let length = section.size("original_max_position_embeddings")?.value;
            Ok(Some(QueryGrowth { beta, length }))
        }
        _ => Ok(None),
    }
}
