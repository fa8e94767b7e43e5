//! Data types that the Neural Engine does not take.

use super::*;

pub(super) static FP32_LITERAL: Rule = Rule {
    text: RuleText {
        id: "C04",
        slug: "fp32-literal",
        title: "an fp32 constant in a graph that computes in fp16",
        severity: Severity::Warning,
        confidence: Confidence::Documented,
        why: "The Neural Engine computes in fp16. A number that was written as fp32 brings a cast and an fp32 operation with \
              it, which leave the Neural Engine. A graph whose inputs and results are fp32 is meant so, and not reported.",
        evidence: &[
            "apple/coreai-models, neural_engine_rules: float literals in Python inject fp32 casts",
            "apple/coreai-models, neural_engine_rules: fp32 falls back to GPU or CPU",
        ],
        remedy: "give the constant in fp16",
        off_ane: true,
    },
    check: Check::Graph(|graph, sink| {
        let ports = || graph.graph.inputs.iter().chain(&graph.graph.outputs);
        let has = |scalar| ports().any(|port| element(&port.ty) == Some(scalar));
        if !has(Scalar::F16) || has(Scalar::F32) {
            return;
        }
        for op in graph.ops().filter(|op| matches!(op.constant(), Some((Scalar::F32, _)))) {
            sink.op(graph, &op, format!("is {}", op.op.results[0]));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::scaled(Scalar::F32), || examples::scaled(Scalar::F16)),
};

#[cfg(test)]
mod examples {
    use super::*;
    use crate::Program;

    /// An fp16 input times a constant of a type.
    pub(super) fn scaled(literal: Scalar) -> Program {
        let mut draft = Draft::new();
        let x = draft.input("x", fixed(&[4], Scalar::F16));
        let one = match literal {
            Scalar::F32 => draft.splat(fixed(&[4], literal), &1f32.to_le_bytes()),
            _ => draft.splat(fixed(&[4], literal), &[0, 0x3c]),
        };
        let wide = draft.op("primitive.cast_v1", &[x], fixed(&[4], literal));
        let product = draft.op("primitive.mul_v1", &[wide, one], fixed(&[4], literal));
        let y = draft.op("primitive.cast_v1", &[product], fixed(&[4], Scalar::F16));
        draft.finish(y)
    }
}
