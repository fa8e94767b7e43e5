//! Weights as integers and scales.

use super::*;

const SCALED: &str = "primitive.blockwise_shift_scale";

pub(super) static PER_BLOCK_INTEGERS: Rule = Rule {
    text: RuleText {
        id: "C01",
        slug: "per-block-integers",
        title: "integer weights with a scale per block",
        severity: Severity::Error,
        confidence: Confidence::SingleReport,
        why: "Weights with scales along two dimensions (per-block quantisation) are valid, and right on the GPU. On the \
              Neural Engine they were reported to give wrong numbers without a word, or to be left to the GPU by a \
              compiler that ends with success.",
        evidence: &[
            "apple/coreai-models issue 279, a user's measurement: cosine 0.367 with per-block integers, 0.9975 with palettes",
            "apple/coreai-models issue 205, a user's report: coreai-build exits with 0 and writes an asset for the GPU only",
            "apple/coreai-models, export/ios.py: Apple's own recipe for the Neural Engine uses palettes and per-tensor int8",
        ],
        remedy: "use a palette (lut_to_dense), or int8 with one scale per output channel, where the Neural Engine is meant",
        off_ane: true,
    },
    check: Check::Graph(|graph, sink| {
        for op in graph.ops_named(SCALED) {
            let Some((data, scale)) = graph.operand_dims(&op, 0).zip(graph.operand_dims(&op, 1)) else {
                continue;
            };
            let is_integer = graph.operand_type(&op, 0).and_then(element).is_some_and(Scalar::is_integer);
            let scaled: Vec<_> = scale.iter().filter(|dim| **dim != Dim::Fixed(1)).collect();
            if is_integer && scaled.len() > 1 {
                sink.op(graph, &op, format!("scales are {} for a weight of {}", shape(scale), shape(data)));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::scaled(&[16, 2]), || examples::scaled(&[16, 1])),
};

pub(super) static SCALE_RANK: Rule = Rule {
    text: RuleText {
        id: "C02",
        slug: "scale-rank",
        title: "a scale has another rank than its weight",
        severity: Severity::Warning,
        confidence: Confidence::Executed,
        why: "Apple's interpreter traps on a scale of rank 0 for data of rank 3, which ends the process (SIGILL); scales of \
              the same rank are fine. Apple's recipe for iOS has such a scale for its table of embeddings.",
        evidence: &[
            "coreai-core 1.0.0b3 on Linux, executed: `extend` of Apple's Qwen3 recipe for iOS ends in SIGILL",
        ],
        remedy: "give the scale as many dimensions as the weight, of size 1",
        off_ane: false,
    },
    check: Check::Graph(|graph, sink| {
        for op in graph.ops_named(SCALED) {
            let Some((data, scale)) = graph.operand_dims(&op, 0).zip(graph.operand_dims(&op, 1)) else {
                continue;
            };
            if data.len() != scale.len() {
                sink.op(graph, &op, format!("rank {} for a weight of rank {}", scale.len(), data.len()));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::scaled(&[]), || examples::scaled(&[1, 1])),
};

fn shape(dims: &[Dim]) -> String {
    dims.iter().map(Dim::to_string).collect::<Vec<_>>().join("x")
}

#[cfg(test)]
mod examples {
    use super::*;
    use crate::Program;

    /// A weight of 16 x 64 with scales of a shape.
    pub(super) fn scaled(scale: &[u64]) -> Program {
        let mut draft = Draft::new();
        let data = draft.splat(fixed(&[16, 64], Scalar::I8), &[1]);
        let scale_of = |draft: &mut Draft, element, bytes: &[u8]| draft.splat(fixed(scale, element), bytes);
        let operands = [
            data,
            scale_of(&mut draft, Scalar::F16, &[0, 0x3c]),
            scale_of(&mut draft, Scalar::I8, &[0]),
            scale_of(&mut draft, Scalar::F16, &[0, 0]),
        ];
        let weight = draft.op("primitive.blockwise_shift_scale_v2", &operands, fixed(&[16, 64], Scalar::F16));
        draft.finish(weight)
    }
}
