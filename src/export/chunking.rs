//! How many packages a model needs.

use crate::lint::{Platform, Target};
use crate::lower::Options;
use crate::model::{Attention, Decoder, Encoder, EncoderLayer, Layer, Linear, Mlp, Weight};
use crate::vocabulary::Embeddings;

/// What one package may hold.
struct Limits {
    bytes: u64,
    layers: usize,
}

/// Limits that public reports give for packages that compile and load: about 1.8 GB on a Mac; 0.9 GB and 16 layers on
/// a phone, where 17 and more layers in one package failed to compile. Nobody has reported others for later systems.
fn limits(target: Target) -> Limits {
    match target.platform() {
        Platform::Macos => Limits { bytes: 1_800_000_000, layers: usize::MAX },
        Platform::Ios => Limits { bytes: 900_000_000, layers: 16 },
    }
}

/// With weights of so many bits each: the fewest packages within the target's limits; one per layer if even that is too much.
pub(super) fn count(decoder: &Decoder, options: &Options, bits: f64, target: Target) -> usize {
    let limits = limits(target);
    let bytes = |elements: u64, bits: f64| (elements as f64 * bits / 8.0) as u64;
    let layers: Vec<u64> = decoder.layers.iter().map(|layer| bytes(layer_elements(layer), bits)).collect();
    // Embeddings and heads are never narrower than int8 unless a rule says so.
    let vocabulary = bytes((decoder.vocabulary * decoder.hidden) as u64, bits.max(8.0));
    let per_layer = per_layer_bytes(decoder, options, bits);
    let fits = |count: usize| {
        (0..count).all(|index| {
            let share = layers.len() * index / count..layers.len() * (index + 1) / count;
            let ends = u64::from(index == 0) + u64::from(index + 1 == count);
            let ends = if count == 1 && decoder.head.tied && options.head_split == 1 { 1 } else { ends };
            let more = if index == 0 { per_layer } else { 0 };
            share.len() <= limits.layers
                && layers[share].iter().sum::<u64>() + ends * vocabulary + more <= limits.bytes
        })
    };
    (1..=layers.len()).find(|&count| fits(count)).unwrap_or(layers.len()).max(1)
}

/// What the first package holds for the inputs of layers: the projection, and the table unless the host has it.
fn per_layer_bytes(decoder: &Decoder, options: &Options, bits: f64) -> u64 {
    let Some(inputs) = &decoder.per_layer else { return 0 };
    let bytes = |elements: usize, bits: f64| (elements as f64 * bits / 8.0) as u64;
    let table = match options.embeddings {
        Embeddings::Host => 0,
        Embeddings::Function | Embeddings::Graph => bytes(inputs.table.element_count(), bits.max(8.0)),
    };
    table + bytes(inputs.projection.weight.element_count(), bits)
}

/// The same of an encoder, whose table of tokens is in the first package.
pub(super) fn count_encoder(encoder: &Encoder, bits: f64, target: Target) -> usize {
    let limits = limits(target);
    let bytes = |elements: u64, bits: f64| (elements as f64 * bits / 8.0) as u64;
    let elements = |layer: &EncoderLayer| part_elements(&layer.attention.part, &layer.mlp.part);
    let layers: Vec<u64> = encoder.layers.iter().map(|layer| bytes(elements(layer), bits)).collect();
    let table = bytes((encoder.vocabulary * encoder.hidden) as u64, bits.max(8.0));
    let fits = |count: usize| {
        (0..count).all(|index| {
            let share = layers.len() * index / count..layers.len() * (index + 1) / count;
            let first = if index == 0 { table } else { 0 };
            share.len() <= limits.layers && layers[share].iter().sum::<u64>() + first <= limits.bytes
        })
    };
    (1..=layers.len()).find(|&count| fits(count)).unwrap_or(layers.len()).max(1)
}

/// Numbers in the matrices of a layer.
pub(super) fn layer_elements(layer: &Layer) -> u64 {
    let matrices = layer.mixer.matrices().into_iter().map(|(_, linear)| elements(linear)).sum::<u64>();
    let own = layer.per_layer.iter().flat_map(|mix| mix.parts().0).map(elements).sum::<u64>();
    matrices + mlp_elements(&layer.mlp) + layer.mixer.other_elements() as u64 + own
}

fn part_elements(attention: &Attention, mlp: &Mlp) -> u64 {
    let Attention { query, key, value, output, .. } = attention;
    [query, key, value, output].into_iter().map(elements).sum::<u64>() + mlp_elements(mlp)
}

fn mlp_elements(mlp: &Mlp) -> u64 {
    let matrices = match mlp {
        Mlp::Plain { up, down, .. } => vec![up, down],
        Mlp::Gated { gate, up, down, .. } => vec![gate, up, down],
        Mlp::Inner { into, value, gate, out, .. } => vec![into, value, gate, out],
    };
    matrices.into_iter().map(elements).sum()
}

fn elements(linear: &Linear) -> u64 {
    let bias = linear.bias.as_ref().map_or(0, Weight::element_count);
    (linear.weight.element_count() + bias) as u64
}
