//! Ranks that the Neural Engine's compiler takes.

use super::*;

const HIGHEST: usize = 5;

pub(super) static RANK_ABOVE_5: Rule = Rule {
    text: RuleText {
        id: "C05",
        slug: "rank-over-5",
        title: "a tensor has more than five dimensions",
        severity: Severity::Error,
        confidence: Confidence::Documented,
        why: "The compiler for the Neural Engine rejects tensors of rank 6 and more. Constants are not counted: tables of \
              palettes have an axis or two more than their weight.",
        evidence: &["apple/coreai-models, neural_engine_rules: rank 5 is accepted, 6 and more rejected"],
        remedy: "fold axes together with a reshape before the operation",
        off_ane: true,
    },
    check: Check::Graph(|graph, sink| {
        for port in &graph.graph.inputs {
            if let Some(dims) = dims(&port.ty).filter(|dims| dims.len() > HIGHEST) {
                sink.port(graph, &port.name, format!("has rank {}: {}", dims.len(), port.ty));
            }
        }
        for op in graph.ops().filter(|op| op.constant().is_none()) {
            let ranks = op.op.results.iter().filter_map(|ty| Some((ty, dims(ty)?.len())));
            if let Some((ty, rank)) = ranks.filter(|(_, rank)| *rank > HIGHEST).max_by_key(|(_, rank)| *rank)
            {
                sink.op(graph, &op, format!("has rank {rank}: {ty}"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::negated(&[1, 2, 2, 2, 2, 2]), || examples::negated(&[1, 2, 2, 2, 4])),
};

#[cfg(test)]
mod examples {
    use super::*;
    use crate::Program;

    pub(super) fn negated(dims: &[u64]) -> Program {
        let mut draft = Draft::new();
        let x = draft.input("x", fixed(dims, Scalar::F16));
        let y = draft.op("primitive.abs_v1", &[x], fixed(dims, Scalar::F16));
        draft.finish(y)
    }
}
