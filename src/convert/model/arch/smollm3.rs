//! SmolLM3: Llama's layers, of which every fourth has no positions (NoPE: Yang et al. 2025); those may have a window.

use super::family::Family;
use super::rotary::{Defaults, USUAL};
use super::{Architecture, llama, windowed};
use crate::checkpoint::Config;
use crate::model::graph::{Attention, Decoder};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "smollm3",
    classes: &["SmolLM3ForCausalLM"],
    model_types: &["smollm3"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 32_768), ("no_rope_layer_interval", 4)]);
    let family = Family { tied_by_default: true, ..Family::read(DEF.name, &keys, tensors)? };
    let rotary = family.rotary_or(&keys, Defaults { base: 2_000_000.0, ..USUAL })?;
    let rotated = rotated_layers(&keys, family.layers)?;
    let windows = windows(&keys, &rotated)?;
    let attention_bias = keys.bool_or("attention_bias", false)?;
    let mlp_bias = keys.bool_or("mlp_bias", false)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, i, at| {
        let projections = family.projections(tensors, at, (attention_bias, attention_bias));
        let attention = Attention {
            rope: rotated[i].then(|| rotary.rope.clone()),
            ..family.attention(projections, &rotary.rope, windows[i])
        };
        let mlp = family.gated_mlp(tensors, at, mlp_bias);
        family.layer(tensors, at, attention, mlp)
    })
}

/// Which layers are rotated: those that a list of ones and zeros says, or all but every fourth.
fn rotated_layers(keys: &Keys, layers: usize) -> Result<Vec<bool>> {
    const KEY: &str = "no_rope_layers";
    if !keys.has(KEY) {
        let interval = keys.size("no_rope_layer_interval")?.value;
        return Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect());
    }
    let listed = keys.floats(KEY)?;
    if listed.len() < layers {
        return Err(keys.wrong(KEY, &format!("has {} entries for {layers} layers", listed.len())));
    }
    Ok(listed.into_iter().take(layers).map(|rotated| rotated != 0.0).collect())
}

fn windows(keys: &Keys, rotated: &[bool]) -> Result<Vec<Option<usize>>> {
    let window = keys.opt_size("sliding_window")?.map(|size| size.value);
    if !keys.bool_or("use_sliding_window", false)? || window.is_none() {
        return Ok(vec![None; rotated.len()]);
    }
    let windowed = windowed(keys, rotated.len(), |layer| !rotated[layer])?;
    Ok(windowed.into_iter().map(|windowed| window.filter(|_| windowed)).collect())
}
