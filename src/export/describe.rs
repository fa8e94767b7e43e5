//! The export in the words of `export.json`.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::chunking::layer_elements;
use crate::bundle::{
    Architecture, Chunk, File, LongRotation, Mask, PerLayerLookup, QueryScale, Rotation, Tool, digest_text,
    functions,
};
use crate::lower::{Positions, RotationInput};
use crate::mil::{LiteralData, Model};
use crate::model::{Decoder, Layer, Mlp, Norm, Position, Weight};
use crate::package::Summary;

pub(super) fn tool() -> Tool {
    Tool { name: env!("CARGO_PKG_NAME").to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

pub(super) fn file(name: &str, bytes: &[u8]) -> File {
    File { name: name.to_owned(), bytes: bytes.len() as u64, digest: digest_text(xxh3_128(bytes)) }
}

/// The sizes of a decoder.
pub fn architecture(decoder: &Decoder) -> Architecture {
    let attentions = || decoder.layers.iter().filter_map(Layer::attention);
    let with_own_keys = attentions().filter(|a| a.shared_from.is_none());
    let kv_bytes_per_token = with_own_keys.map(|a| 2 * 2 * (a.kv_heads * a.head_dim) as u64).sum();
    let first = attentions().next();
    Architecture {
        name: decoder.architecture.to_owned(),
        hidden: decoder.hidden,
        vocabulary: decoder.vocabulary,
        layers: decoder.layers.len(),
        heads: first.map_or(0, |a| a.heads),
        kv_heads: first.map_or(0, |a| a.kv_heads),
        head_dim: first.map_or(0, |a| a.head_dim),
        parameters: parameters(decoder),
        max_positions: decoder.max_positions,
        kv_bytes_per_token,
        state_bytes: decoder.layers.iter().map(|layer| layer.mixer.state_bytes()).sum(),
        embedding_scale: decoder.embedding_scale,
        learned_positions: matches!(decoder.position, Position::Learned(_)),
        per_layer: decoder
            .per_layer
            .as_ref()
            .map(|inputs| PerLayerLookup { width: inputs.all(), scale: inputs.scale }),
    }
}

/// Numbers in all weights.
fn parameters(decoder: &Decoder) -> u64 {
    let own = |layer: &Layer| layer_elements(layer) + norm_elements(layer) - elements_twice(layer);
    let layers: u64 = decoder.layers.iter().map(own).sum();
    let heads = if decoder.head.tied { 1 } else { 2 };
    let positions = match &decoder.position {
        Position::Learned(positions) => positions.element_count() as u64,
        Position::Rotary => 0,
    };
    let vocabulary = heads * (decoder.vocabulary * decoder.hidden) as u64;
    let per_layer = decoder.per_layer.as_ref().map_or(0, |inputs| {
        let table = inputs.table.element_count() + inputs.projection.weight.element_count();
        table as u64 + elements_of(&inputs.norm)
    });
    // The factor on what leaves a layer is a setting.
    layers + elements_of(&decoder.final_norm) + vocabulary + positions + per_layer
}

/// Numbers of a matrix that gives both keys and values.
fn elements_twice(layer: &Layer) -> u64 {
    let Some(attention) = layer.attention() else { return 0 };
    let (key, value) = (&attention.key.weight, &attention.value.weight);
    if key.name == value.name { value.element_count() as u64 } else { 0 }
}

fn norm_elements(layer: &Layer) -> u64 {
    let Layer { attention_norm, mixer, post_attention_norm, mlp_norm, mlp, post_mlp_norm, .. } = layer;
    let gate_norm = match mlp {
        Mlp::Inner { gate_norm, .. } => gate_norm.as_ref(),
        Mlp::Plain { .. } | Mlp::Gated { .. } => None,
    };
    let around = [attention_norm, mlp_norm, post_attention_norm, post_mlp_norm];
    let around = around.into_iter().filter_map(Option::as_ref);
    let per_layer = layer.per_layer.as_ref().map(|mix| mix.parts().1);
    around.chain(mixer.norms()).chain(gate_norm).chain(per_layer).map(elements_of).sum()
}

fn elements_of(norm: &Norm) -> u64 {
    let bias = norm.bias.as_ref().map_or(0, Weight::element_count);
    (norm.weight.element_count() + bias) as u64
}

/// A package that was written, and what a host has to know of its functions.
pub fn chunk(
    name: String,
    summary: &Summary,
    layers: &Range<usize>,
    positions: &Positions,
    model: &Model,
) -> Chunk {
    chunk_of(package(name, summary), layers, positions, model)
}

/// A package that was written.
pub(super) fn package(name: String, summary: &Summary) -> File {
    File { name, bytes: summary.bytes, digest: digest_text(summary.digest) }
}

/// A model file that was written, and what a host has to know of its functions.
pub(super) fn chunk_of(file: File, layers: &Range<usize>, positions: &Positions, model: &Model) -> Chunk {
    let masks = positions.masks.iter().map(|mask| Mask { input: mask.name.clone(), window: mask.window });
    let rotations = positions.rotations.iter().map(rotation);
    let query_scales = positions.growths.iter().map(|input| QueryScale {
        input: input.name.clone(),
        beta: input.growth.beta,
        length: input.growth.length,
    });
    Chunk {
        file,
        first_layer: layers.start,
        layers: layers.len(),
        masks: masks.collect(),
        rotations: rotations.collect(),
        query_scales: query_scales.collect(),
        functions: functions(model),
        asset: None,
    }
}

fn rotation(input: &RotationInput) -> Rotation {
    let single = |frequencies: Vec<f64>| frequencies.into_iter().map(|frequency| frequency as f32).collect();
    let rope = &input.rope;
    let long = rope.long_frequencies();
    Rotation {
        cos: input.cos.clone(),
        sin: input.sin.clone(),
        frequencies: single(rope.frequencies()),
        magnitude: rope.magnitude() as f32,
        long: long.map(|long| LongRotation { above: long.above, frequencies: single(long.frequencies) }),
    }
}

/// Bytes of the weights that a package of this model streams in.
pub(super) fn weight_bytes(model: &Model) -> u64 {
    let mut seen = HashSet::new();
    let operations = model.program.functions.iter().flat_map(|function| &function.body.operations);
    let literals = operations.flat_map(|operation| &operation.attributes).map(|(_, literal)| literal);
    let streams = literals.filter_map(|literal| match &literal.data {
        LiteralData::Stream(payload) => Some(payload),
        _ => None,
    });
    let unseen = streams.filter(|payload| seen.insert(Arc::as_ptr(payload).cast::<()>().addr()));
    unseen.map(|payload| payload.byte_len()).sum()
}
