//! The last axis, which the Neural Engine pads to 64 bytes.

use super::pattern::{count, half_outputs};
use super::*;

/// fp16 elements in 64 bytes.
const LINE: usize = 32;
/// Tensors with fewer elements waste nothing worth a word.
const SMALL: usize = 1024;
/// Nor does padding of less than one part in so many.
const WORTH: usize = 8;

pub(super) static UNALIGNED_LAST_AXIS: Rule = Rule {
    title: "the last axis is not a multiple of 32",
    why: "Rows are padded to 64 bytes, which is 32 elements of fp16: a shorter or uneven last axis takes memory and \
          bandwidth for padding. Tensors under 1024 elements are not reported, nor is padding of less than an eighth, \
          such as that of 513 scores to 544, nor are last axes of 1 (A10).",
    evidence: &[
        "apple/coreai-models, neural_engine_rules: the last axis is padded to 64 bytes",
        "apple/ml-ane-transformers: the last axis is unpacked and must be contiguous and aligned to 64 bytes",
    ],
    remedy: "put an axis on the end that is a multiple of 32, such as a padded sequence",
    check: Check::Shape(|graph, _, sink| {
        for (op, id, last, dims) in reported(graph) {
            let padded = last.div_ceil(LINE).saturating_mul(LINE);
            if last != 1 && padded - last >= last.div_ceil(WORTH) {
                let place = Place::op(graph, &op).tensor(graph.name(id)).dimension(dims.len() - 1);
                let message = format!("{:?} is padded from {last} to {padded} in its last axis", &dims[..]);
                sink.at(graph, place, message);
            }
        }
    }),
    #[cfg(test)]
    examples: (|| activated("relu", &[1, 64, 1, 33]), || activated("relu", &[1, 64, 1, 64])),
    ..Rule::warning("A09", "unaligned-last-axis", Documented).decided_by("enumerate_shapes")
};

pub(super) static SINGLETON_LAST_AXIS: Rule = Rule {
    title: "the last axis is 1",
    why: "A last axis of one element is padded to 64 bytes: 32 times the memory in fp16, 64 times in int8. Decoding \
          one token at a time in the layout (batch, channels, 1, sequence) does this to every activation; they are \
          small beside the weights read, so it costs less than it looks. Tensors under 1024 elements are not reported.",
    evidence: &[
        "apple/coreai-models, neural_engine_rules: a singleton last axis costs 32 times the memory",
        "apple/coreai-models, base.py: the smallest query length is 8, padded",
        "larql issue 312: 8 columns cost 4 % more than 1",
    ],
    remedy: "where it matters, decode with several padded positions, or keep such tensors small",
    check: Check::Shape(|graph, _, sink| {
        for (op, id, _, dims) in reported(graph).filter(|&(_, _, last, _)| last == 1) {
            let place = Place::op(graph, &op).tensor(graph.name(id)).dimension(dims.len() - 1);
            let padded = count(&dims).saturating_mul(2 * LINE);
            let message = format!(
                "{:?} takes {padded} bytes in place of {}",
                &dims[..],
                count(&dims).saturating_mul(2)
            );
            sink.at(graph, place, message);
        }
    }),
    #[cfg(test)]
    examples: (|| activated("relu", &[1, 2048, 1, 1]), || activated("relu", &[1, 2048, 1, 32])),
    ..Rule::warning("A10", "singleton-last-axis", Documented)
};

/// Outputs worth a word: operation, value, last axis, sizes.
fn reported<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = (Op<'m>, ValueId, usize, Shape)> + 'g {
    let outputs = half_outputs(graph).filter(|(.., dims)| dims.len() > 2 && count(dims) >= SMALL);
    outputs.filter_map(|(op, id, dims)| dims.last().copied().map(|last| (op, id, last, dims)))
}
