//! Activation functions.

use super::*;

pub(super) static NATIVE_SILU_TANH: Rule = Rule {
    title: "a native silu or tanh",
    why: "Native SiLU and tanh may be lowered to fp32, which leaves the Neural Engine; a package does not show whether \
          they will be. Written through a sigmoid they stay in fp16.",
    evidence: &["apple/coreai-models, neural_engine_rules: x * sigmoid(x), and 2 * sigmoid(2x) - 1 for tanh"],
    remedy: "write silu as x * sigmoid(x), and tanh as 2 * sigmoid(2x) - 1 where its last bit does not matter",
    check: Check::Function(|graph, _, sink| {
        sink.op_types(graph, &["silu", "tanh"], "may be computed in fp32");
    }),
    #[cfg(test)]
    examples: (|| activated("silu", &[1, 64, 1, 32]), || activated("sigmoid", &[1, 64, 1, 32])),
    ..Rule::warning("A36", "native-silu-tanh", Documented)
};
