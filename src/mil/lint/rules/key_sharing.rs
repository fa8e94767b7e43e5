//! Keys and values shared by several query heads.

use super::pattern::{ACTIVATION_PRODUCTS, leads_to};
use super::*;

pub(super) static REPEATED_KV_HEADS: Rule = Rule {
    title: "keys or values are repeated for grouped queries",
    why: "Repeating keys and values to the number of query heads copies the cache at every prediction.",
    evidence: &["pytorch/executorch: removing repeat_interleave gave 10 to 15 %"],
    remedy: "give queries that share a key an axis of their own, and let the product broadcast",
    check: Check::Function(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let is_repeat = match op.kind() {
                "tile" => graph.ints(&op, "reps").is_some_and(|reps| reps.iter().any(|&n| n > 1)),
                "concat" => is_same_value(graph, &op),
                _ => false,
            };
            if is_repeat && op.output().is_some_and(|id| leads_to(graph, id, ACTIVATION_PRODUCTS, 3)) {
                sink.op(graph, &op, "repeats what a product reads next");
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::grouped(true), || examples::grouped(false)),
    ..Rule::info("A38", "repeated-kv-heads", SingleReport)
};

/// Whether all parts of a concatenation are one value.
fn is_same_value(graph: &Graph<'_>, op: &Op<'_>) -> bool {
    let mut parts = op.values().filter(|&id| !graph.is_constant(id));
    let first = parts.next();
    let mut others = parts.peekable();
    first.is_some() && others.peek().is_some() && others.all(|id| Some(id) == first)
}

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn grouped(repeated: bool) -> Case {
        case(|b| {
            let q = input(b, "q", DType::F16, &[1, 4, 32, 64]);
            let k = input(b, "k", DType::F16, &[1, 1, 64, 32]);
            let k = match repeated {
                true => b.op("tile").arg("x", k).arg("reps", [1, 4, 1, 1]).push().unwrap(),
                false => k,
            };
            vec![matmul(b, q, k)]
        })
    }
}
