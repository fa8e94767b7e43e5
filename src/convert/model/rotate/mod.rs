//! Rotations folded into weights (QuaRot, Ashkboos et al. 2024; SpinQuant, Liu et al. 2024; what they do offline): the model
//! computes the same, in coordinates in which no channel stands out.
//!
//! ```text
//! stream   x' = Qᵀ x      writers W' = Qᵀ W      readers W' = W diag(norm) Q      the norm's scale becomes 1
//! values   v' = Rᵀ v      value W' = Rᵀ W        output W' = W R                  for each head
//! ```
//!
//! An RMS norm does not see a rotation, because it only divides by a length. A layer norm does not see one that keeps the
//! mean. An embedding that is also the head stays one table: what the last norm would have put into the head becomes a map
//! of the hidden size before it.

mod mapped;
mod rotation;

use std::sync::Arc;

use super::graph::{Decoder, Head, Layer, Linear, Mlp, Norm, NormKind, Position};
use super::weight::{Source, Weight};
use crate::checkpoint::{Encoding, Stored};
use anemeter_kernels::tensor::DType;
pub use mapped::Mapped;
use mapped::Maps;
use rotation::Rotation;

/// Seeds of the residual stream's rotation, and of that of values.
const STREAM: u64 = 0x616e_656d;
const VALUES: u64 = 0x6574_6572;

/// A model in other coordinates.
#[derive(Debug, Clone)]
pub struct Rotated {
    /// The model, which computes the same as before.
    pub decoder: Decoder,
    /// The map of the residual stream, or why it has none.
    pub stream: Result<String, String>,
    /// The map of each head's values.
    pub values: Option<String>,
}

/// Rotates the residual stream and the values of each head.
pub fn rotate(decoder: &Decoder) -> Rotated {
    if let Some(reason) = not_plain(decoder) {
        return Rotated { decoder: decoder.clone(), stream: Err(reason), values: None };
    }
    let stream = stream(decoder);
    let mut rotated = decoder.clone();
    let attentions = decoder.layers.iter().filter_map(Layer::attention);
    let values: Vec<_> =
        attentions.map(|attention| Arc::new(Rotation::new(attention.head_dim, VALUES))).collect();
    if let Ok(rotation) = &stream {
        rotated.embedding = turned(&decoder.embedding, rotation);
        if let Position::Learned(positions) = &decoder.position {
            rotated.position = Position::Learned(turned(positions, rotation));
        }
        (rotated.head, rotated.final_norm) = head(decoder, &rotated.embedding, rotation);
    }
    for (layer, values) in rotated.layers.iter_mut().zip(&values) {
        rotate_layer(layer, stream.as_ref().ok(), values);
    }
    Rotated {
        decoder: rotated,
        stream: stream.map(|rotation| rotation.describe()),
        values: values.first().map(|rotation| rotation.describe()),
    }
}

/// Why nothing is rotated: a layer has no attention, or a gate on what it gives.
fn not_plain(decoder: &Decoder) -> Option<String> {
    let is_plain = |layer: &Layer| layer.attention().is_some_and(|own| own.output_gate.is_none());
    let index = decoder.layers.iter().position(|layer| !is_plain(layer))?;
    Some(format!("layer {index} has a convolution or a gate in its mixer"))
}

/// The rotation of the residual stream, if the model allows one.
fn stream(decoder: &Decoder) -> Result<Arc<Rotation>, String> {
    let has_norm_after = |layer: &Layer| layer.post_attention_norm.is_some() || layer.post_mlp_norm.is_some();
    if let Some(index) = decoder.layers.iter().position(has_norm_after) {
        return Err(format!("layer {index} has a norm between a map and the residual stream"));
    }
    let norms = decoder.layers.iter().flat_map(|layer| [&layer.attention_norm, &layer.mlp_norm]);
    let mut norms = norms.filter_map(Option::as_ref).chain([&decoder.final_norm]);
    Ok(Arc::new(match norms.any(|norm| norm.kind == NormKind::Layer) {
        true => Rotation::keeping_mean(decoder.hidden, STREAM),
        false => Rotation::new(decoder.hidden, STREAM),
    }))
}

/// A table of vectors in other coordinates.
fn turned(table: &Weight, rotation: &Arc<Rotation>) -> Weight {
    Maps { inputs: Some(rotation.clone()), ..Maps::default() }.weight(table)
}

fn rotate_layer(layer: &mut Layer, stream: Option<&Arc<Rotation>>, values: &Arc<Rotation>) {
    let attention_norm = layer.attention_norm.clone();
    // A parallel MLP without a norm of its own shares attention's.
    let mlp_norm = layer.mlp_norm.clone().or_else(|| attention_norm.clone());
    let Some(attention) = layer.mixer.attention_mut() else { return };
    if let Some(stream) = stream {
        for map in [&mut attention.query, &mut attention.key] {
            *map = reader(map, attention_norm.as_ref(), stream, None);
        }
        attention.value = reader(&attention.value, attention_norm.as_ref(), stream, Some(values));
        attention.output = writer(&attention.output, Some(values), Some(stream));
        let read = |map: &mut Linear| *map = reader(map, mlp_norm.as_ref(), stream, None);
        let write = |map: &mut Linear| *map = writer(map, None, Some(stream));
        match &mut layer.mlp {
            Mlp::Plain { up, down, .. } => (read(up), write(down)),
            Mlp::Gated { gate, up, down, .. } => {
                read(gate);
                (read(up), write(down))
            }
            Mlp::Inner { into, out, .. } => (read(into), write(out)),
        };
        for norm in [&mut layer.attention_norm, &mut layer.mlp_norm].into_iter().flatten() {
            *norm = unscaled(norm);
        }
    } else {
        attention.value = writer(&attention.value, None, Some(values));
        attention.output = writer(&attention.output, Some(values), None);
    }
}

/// A map of what a norm of the stream gives, with the norm's scale and bias in it.
fn reader(
    map: &Linear,
    norm: Option<&Norm>,
    stream: &Arc<Rotation>,
    outputs: Option<&Arc<Rotation>>,
) -> Linear {
    let mut bias = map.bias.as_ref().map(elements);
    if let Some(shift) = norm.and_then(|norm| norm.bias.as_ref()) {
        let more = product(&map.weight, &elements(shift));
        match &mut bias {
            Some(bias) => bias.iter_mut().zip(more).for_each(|(bias, more)| *bias += more),
            None => bias = Some(more),
        }
    }
    let scales = norm.map(|norm| elements(&norm.weight));
    let maps = Maps { scales, inputs: Some(stream.clone()), outputs: outputs.cloned() };
    with_bias(&map.weight, maps, bias, outputs)
}

/// A map with its outputs in other coordinates, and its inputs as well.
fn writer(map: &Linear, inputs: Option<&Arc<Rotation>>, outputs: Option<&Arc<Rotation>>) -> Linear {
    let maps = Maps { scales: None, inputs: inputs.cloned(), outputs: outputs.cloned() };
    with_bias(&map.weight, maps, map.bias.as_ref().map(elements), outputs)
}

fn with_bias(weight: &Weight, maps: Maps, bias: Option<Vec<f32>>, outputs: Option<&Arc<Rotation>>) -> Linear {
    let bias = bias.map(|mut bias| {
        if let Some(rotation) = outputs.filter(|rotation| bias.len().is_multiple_of(rotation.width().max(1)))
        {
            bias.chunks_mut(rotation.width().max(1)).for_each(|part| rotation.apply(part, 1));
        }
        made(format!("{}.bias", weight.name), &[bias.len()], &bias)
    });
    Linear { weight: maps.weight(weight), bias }
}

/// The head, and the norm before it without a scale.
fn head(decoder: &Decoder, embedding: &Weight, stream: &Arc<Rotation>) -> (Head, Norm) {
    let Decoder { head, final_norm, hidden, .. } = decoder;
    let norm = unscaled(final_norm);
    if !head.tied && final_norm.bias.is_none() {
        let scales = Some(elements(&final_norm.weight));
        let weight = Maps { scales, inputs: Some(stream.clone()), outputs: None }.weight(&head.weight);
        return (Head { weight, ..head.clone() }, norm);
    }
    // Qᵀ diag(scale) Q.
    let mut matrix = vec![0.0; hidden * hidden];
    for (at, (row, scale)) in matrix.chunks_mut(*hidden).zip(elements(&final_norm.weight)).enumerate() {
        row[at] = scale;
        stream.apply(row, 1);
    }
    stream.apply(&mut matrix, *hidden);
    let bias = final_norm.bias.as_ref().map(|bias| {
        let mut bias = elements(bias);
        stream.apply(&mut bias, 1);
        made(format!("{}.turned", final_norm.weight.name), &[*hidden], &bias)
    });
    let weight = made(format!("{}.turned", final_norm.weight.name), &[*hidden, *hidden], &matrix);
    let table = match head.tied {
        true => embedding.clone(),
        false => turned(&head.weight, stream),
    };
    (Head { weight: table, map: Some(Linear { weight, bias }), ..head.clone() }, norm)
}

/// The norm without scale and bias.
fn unscaled(norm: &Norm) -> Norm {
    let ones = vec![1.0; norm.weight.element_count()];
    Norm { weight: made(norm.weight.name.clone(), &norm.weight.shape, &ones), bias: None, ..norm.clone() }
}

fn elements(weight: &Weight) -> Vec<f32> {
    let mut elements = vec![0.0; weight.element_count()];
    weight.read(0..elements.len(), &mut elements);
    elements
}

/// What a matrix gives for a vector.
fn product(weight: &Weight, vector: &[f32]) -> Vec<f32> {
    let rows = weight.shape.first().copied().unwrap_or(0);
    let mut row = vec![0.0; vector.len()];
    let each = (0..rows).map(|index| {
        weight.read(index * row.len()..(index + 1) * row.len(), &mut row);
        row.iter().zip(vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
    });
    each.collect()
}

/// A weight of numbers in memory.
fn made(name: String, shape: &[usize], values: &[f32]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let encoding = Encoding::Plain(DType::F32);
    let stored = Stored { shape: shape.into(), encoding, bytes: bytes.into(), shard: 0 };
    Weight { name, shape: shape.into(), source: Source::Stored(stored) }
}
