//! Granite 4, dense: Granite 3 with a fused gate under another name, and without positions if it is told so. The class is that
//! of the mixtures and hybrids of the family, which are refused.

use super::family::Family;
use super::{Architecture, granite, llama};
use crate::checkpoint::Config;
use crate::model::graph::{Decoder, Mlp};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "granite4",
    classes: &["GraniteMoeHybridForCausalLM"],
    model_types: &["granitemoehybrid"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 2048)]);
    refuse_other_layers(&keys)?;
    let family = Family {
        intermediate: keys.size("shared_intermediate_size")?,
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let is_rotated = match keys.opt_text("position_embedding_type")? {
        Some("rope") => true,
        None | Some("nope") => false,
        Some(other) => {
            return Err(
                keys.wrong("position_embedding_type", &format!("is `{other}`, expected rope or nope"))
            );
        }
    };
    granite::decoder(&family, &keys, tensors, is_rotated, |tensors, at| {
        let wide = &family.intermediate;
        let parts = [("gate", wide), ("up", wide)];
        let [gate, up] = tensors.fused(&format!("{at}.shared_mlp.input_linear"), parts, &family.hidden);
        let down = tensors.linear(&format!("{at}.shared_mlp.output_linear"), &family.hidden, wide, false);
        Mlp::Gated { gate, up, activation: family.activation, down }
    })
}

fn refuse_other_layers(keys: &Keys) -> Result<()> {
    let types = keys.opt_texts("layer_types")?;
    let types =
        types.ok_or_else(|| keys.wrong("layer_types", "is missing; it would be layers of Mamba 2"))?;
    match types.iter().find(|kind| !["attention", "full_attention"].contains(kind)) {
        Some(other) => {
            Err(keys.wrong("layer_types", &format!("has `{other}`, but only attention is supported")))
        }
        None => Ok(()),
    }
}
