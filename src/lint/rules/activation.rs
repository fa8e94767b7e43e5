//! Activation functions.

use super::*;

pub(super) static A36: Rule = Rule {
    id: "A36",
    title: "a native silu or tanh",
    severity: Severity::Warning,
    confidence: Confidence::Documented,
    why: "Native SiLU and tanh may be lowered to fp32, which leaves the Neural Engine; a package does not show whether \
          they will be. Written through a sigmoid they stay in fp16.",
    evidence: &["apple/coreai-models, neural_engine_rules: x * sigmoid(x), and 2 * sigmoid(2x) - 1 for tanh"],
    remedy: "write silu as x * sigmoid(x), and tanh as 2 * sigmoid(2x) - 1 where its last bit does not matter",
    off: false,
    needs: Needs::Package,
    check: Check::Function(|graph, _, sink| {
        for op in graph.runtime_ops().filter(|op| matches!(op.kind(), "silu" | "tanh")) {
            sink.op(graph, &op, "may be computed in fp32");
        }
    }),
    #[cfg(test)]
    examples: (|| examples::activated("silu"), || examples::activated("sigmoid")),
};

#[cfg(test)]
mod examples {
    use super::super::super::testing::*;

    pub(super) fn activated(kind: &str) -> Case {
        case(|b| {
            let x = x(b, &[1, 64, 1, 32]);
            vec![unary(b, kind, x)]
        })
    }
}
