//! OLMo 3: the layers of OLMo 2, three of four behind a window. Those are rotated without the change for long contexts.

use super::family::Family;
use super::rotary::{self, Defaults, Rotary, USUAL};
use super::{Architecture, llama, olmo2, windowed};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "olmo3",
    classes: &["Olmo3ForCausalLM"],
    model_types: &["olmo3"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 2048)]);
    let family = olmo2::family(DEF.name, &keys, tensors)?;
    let (local, global) = rotations(&keys, &family)?;
    let window = keys.size_unless_null("sliding_window", 4096)?.map(|size| size.value);
    let windowed = windowed(&keys, family.layers, |layer| !(layer + 1).is_multiple_of(4))?;
    olmo2::decoder(&family, &keys, tensors, global.max_positions, |i| match windowed[i] {
        true => (&local.rope, window),
        false => (&global.rope, None),
    })
}

/// The rotation of layers with a window, and of those without.
fn rotations(keys: &Keys, family: &Family) -> Result<(Rotary, Rotary)> {
    let base = keys.positive_or("rope_theta", 500_000.0)?;
    let scaled =
        |section: Option<&Keys>| rotary::scaled(keys, section, &family.head_dim, Defaults { base, ..USUAL });
    let Some(parameters) = keys.section("rope_parameters")? else {
        return Ok((scaled(None)?, scaled(keys.section("rope_scaling")?.as_ref())?));
    };
    let section = |key: &str| match parameters.section(key)? {
        Some(section) => scaled(Some(&section)),
        None => Err(parameters.wrong(key, "is missing")),
    };
    Ok((section("sliding_attention")?, section("full_attention")?))
}
