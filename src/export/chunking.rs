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
/// A table of the inputs of layers that no package can hold is left out: more packages would not make room for it.
pub(super) fn count(decoder: &Decoder, options: &Options, bits: f64, target: Target) -> usize {
    let limits = limits(target);
    let bytes = |elements: u64, bits: f64| (elements as f64 * bits / 8.0) as u64;
    let layers: Vec<u64> = decoder.layers.iter().map(|layer| bytes(layer_elements(layer), bits)).collect();
    // Embeddings and heads are never narrower than int8 unless a rule says so.
    let vocabulary = bytes((decoder.vocabulary * decoder.hidden) as u64, bits.max(8.0));
    let table = match options.embeddings {
        Embeddings::Function | Embeddings::Graph if holds_table(decoder, bits, target) => {
            table_bytes(decoder, bits)
        }
        _ => 0,
    };
    let projection = decoder.per_layer.iter().map(|inputs| inputs.projection.weight.element_count() as u64);
    let per_layer = table + bytes(projection.sum(), bits);
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

/// Whether a package can hold the table that inputs of layers are looked up in, beside that of token vectors.
pub(super) fn holds_table(decoder: &Decoder, bits: f64, target: Target) -> bool {
    let vectors = ((decoder.vocabulary * decoder.hidden) as f64 * bits.max(8.0) / 8.0) as u64;
    decoder.per_layer.is_none() || table_bytes(decoder, bits) + vectors <= limits(target).bytes
}

/// Bytes of the table that inputs of layers are looked up in.
pub(super) fn table_bytes(decoder: &Decoder, bits: f64) -> u64 {
    let elements = decoder.per_layer.as_ref().map_or(0, |inputs| inputs.table.element_count());
    (elements as f64 * bits.max(8.0) / 8.0) as u64
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::options::ExportOptions;
    use super::*;
    use crate::checkpoint;
    use crate::model::{self, PerLayerInputs};

    /// Of Gemma 4 E2B: layers, and numbers that each has of a token.
    const LAYERS: usize = 35;
    const WIDTH: usize = 256;

    /// A decoder with small layers whose inputs are looked up for so many tokens; only sizes are looked at.
    fn decoder(tokens: usize) -> Decoder {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/quickstart/model");
        let mut decoder = model::build(&checkpoint::open(path).unwrap()).unwrap();
        decoder.layers = vec![decoder.layers[0].clone(); LAYERS];
        let mut table = decoder.embedding.clone();
        table.shape = [tokens, LAYERS * WIDTH].as_slice().into();
        decoder.per_layer = Some(PerLayerInputs {
            width: WIDTH,
            table,
            scale: 16.0,
            projection: Linear { weight: decoder.embedding.clone(), bias: None },
            norm: decoder.final_norm.clone(),
        });
        decoder
    }

    #[test]
    fn a_table_that_no_package_can_hold_is_looked_up_by_the_host() {
        let wanted = |embeddings| ExportOptions {
            embeddings,
            enumerate_shapes: Some(vec![16]),
            target: Some(Target::Macos26),
            ..ExportOptions::default()
        };
        let large = decoder(262_144);
        let resolved = wanted(None).resolve(&large).unwrap();
        assert_eq!((resolved.options.embeddings, resolved.options.chunks), (Embeddings::Host, 1));
        let [warning] = &resolved.warnings[..] else { panic!("{:?}", resolved.warnings) };
        assert!(warning.contains("has 4.7 GB, which no package for macos26 can hold"), "{warning}");

        let resolved = wanted(Some(Embeddings::Function)).resolve(&large).unwrap();
        assert_eq!((resolved.options.embeddings, resolved.options.chunks), (Embeddings::Function, 1));
        assert!(resolved.warnings[0].ends_with("give --embeddings host"), "{:?}", resolved.warnings);

        let resolved = wanted(Some(Embeddings::Host)).resolve(&large).unwrap();
        assert!(resolved.warnings.is_empty(), "{:?}", resolved.warnings);
        let resolved = wanted(None).resolve(&decoder(1000)).unwrap();
        assert_eq!((resolved.options.embeddings, resolved.options.chunks), (Embeddings::Function, 1));
        assert!(resolved.warnings.is_empty(), "{:?}", resolved.warnings);
    }
}
