//! Qwen2 and Qwen2.5: Llama's layers with biases on queries, keys and values; upper layers may use a window.

use super::family::Family;
use super::{Architecture, llama, windowed};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "qwen2",
    classes: &["Qwen2ForCausalLM"],
    model_types: &["qwen2"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 32_768)]);
    let family = Family::read(DEF.name, &keys, tensors)?;
    let rotary = family.rotary(&keys)?;
    let windows = windows(&keys, family.layers)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, i, at| {
        let projections = family.projections(tensors, at, (true, false));
        let attention = family.attention(projections, &rotary.rope, windows[i]);
        let mlp = family.gated_mlp(tensors, at, false);
        family.layer(tensors, at, attention, mlp)
    })
}

/// The window of each layer: of those from `max_window_layers` on, if windows are used at all.
pub(super) fn windows(keys: &Keys, layers: usize) -> Result<Vec<Option<usize>>> {
    if !keys.bool_or("use_sliding_window", false)? {
        return Ok(vec![None; layers]);
    }
    let window = keys.opt_size("sliding_window")?.map_or(4096, |size| size.value);
    let full = keys.count_or("max_window_layers", 28)?;
    let windowed = windowed(keys, layers, |layer| layer >= full)?;
    Ok(windowed.into_iter().map(|windowed| windowed.then_some(window)).collect())
}
