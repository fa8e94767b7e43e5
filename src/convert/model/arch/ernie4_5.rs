//! Ernie 4.5, dense: Llama's layers with heads whose neighbouring dimensions form pairs.

use super::family::Family;
use super::rotary::{Defaults, USUAL};
use super::{Architecture, llama};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "ernie4_5",
    classes: &["Ernie4_5ForCausalLM"],
    model_types: &["ernie4_5"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 131_072), ("head_dim", 128)]);
    let epsilon = keys.epsilon("rms_norm_eps", 1e-5)?;
    let family = Family { epsilon, tied_by_default: true, ..Family::read(DEF.name, &keys, tensors)? };
    let rotary = family.rotary_or(&keys, Defaults { base: 500_000.0, ..USUAL })?;
    let bias = keys.bool_or("use_bias", false)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (bias, bias));
        let projections = family.pairs_by_halves(projections, &rotary.rope);
        let attention = family.attention(projections, &rotary.rope, None);
        let mlp = family.gated_mlp(tensors, at, bias);
        family.layer(tensors, at, attention, mlp)
    })
}
