//! Constants that are no numbers.

use std::collections::BTreeSet;

use anemeter_kernels::tensor::Bytes;
use half::f16;

use super::*;
use crate::{Attribute, ResourceData};

/// Mapped weights are handed back to the system after this many bytes.
const CHUNK: usize = 16 << 20;

pub(super) static FP16_INFINITY: Rule = Rule {
    text: RuleText {
        id: "C03",
        slug: "fp16-infinity",
        title: "an fp16 constant holds infinity or NaN",
        severity: Severity::Error,
        confidence: Confidence::Documented,
        why: "Minus infinity in a mask becomes NaN where a whole row is masked or where it meets another infinity, and fp16 \
              was reported to be wrong on the Neural Engine without a word. All fp16 constants are read, weights and \
              palettes included.",
        evidence: &[
            "apple/coreai-models: Apple's masks use -4e4, never infinity",
            "apple/coreai-torch issues 51, 115 and 116, users' reports: fp16 is wrong on the Neural Engine without an error",
        ],
        remedy: "use -4e4 in masks, and find out why a weight is not finite",
        off_ane: false,
    },
    check: Check::Graph(|graph, sink| {
        let mut seen = BTreeSet::new();
        for op in graph.ops() {
            let Some((Scalar::F16, value)) = op.constant() else { continue };
            let fault = match value {
                Attribute::DenseElements { bytes, .. } => first_fault(bytes),
                Attribute::DenseResource(resource) => match &*resource.0 {
                    ResourceData::Bytes(bytes) if seen.insert((bytes.as_ptr().addr(), bytes.len())) => {
                        in_chunks(bytes)
                    }
                    _ => None,
                },
                _ => None,
            };
            if let Some((index, value)) = fault {
                sink.op(graph, &op, format!("has {value} at element {index}"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::mask(f16::NEG_INFINITY), || examples::mask(f16::from_f32(-4e4))),
};

/// The first element that is not finite.
fn first_fault(bytes: &[u8]) -> Option<(usize, f16)> {
    let (elements, _) = bytes.as_chunks();
    elements.iter().map(|bytes| f16::from_le_bytes(*bytes)).enumerate().find(|(_, value)| !value.is_finite())
}

fn in_chunks(bytes: &Bytes) -> Option<(usize, f16)> {
    for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
        if let Some((at, value)) = first_fault(chunk) {
            return Some((index * CHUNK / size_of::<f16>() + at, value));
        }
        if chunk.len() == CHUNK {
            bytes.release(index * CHUNK..(index + 1) * CHUNK);
        }
    }
    None
}

#[cfg(test)]
mod examples {
    use super::*;
    use crate::Program;

    pub(super) fn mask(value: f16) -> Program {
        let mut draft = Draft::new();
        let x = draft.input("x", fixed(&[1, 4], Scalar::F16));
        let mask = draft.splat(fixed(&[1, 4], Scalar::F16), &value.to_le_bytes());
        let y = draft.op("primitive.add_v1", &[x, mask], fixed(&[1, 4], Scalar::F16));
        draft.finish(y)
    }
}
