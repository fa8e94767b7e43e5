//! The layout (batch, channels, 1, sequence).

use super::pattern::{LinearMap, count, linear_maps};
use super::*;

/// Tensors with fewer elements cost nothing worth a word.
const SMALL: usize = 1024;

pub(super) static LAST_AXIS_MOVED: Rule = Rule {
    title: "a transpose or reshape touches the last axis",
    why: "In the layout (batch, channels, 1, sequence) the last axis is the one that is contiguous in memory: moving \
          it or changing its size copies the tensor. Only functions with 1x1 convolutions are meant, and tensors of \
          1024 elements or more.",
    evidence: &["apple/ml-ane-transformers: avoid reshapes and transposes that move the last axis"],
    remedy: "split and join channels only, and let products transpose their operands",
    check: Check::Shape(|graph, _, sink| {
        let in_layout = |LinearMap { op, .. }: LinearMap<'_>| {
            op.kind() == "conv"
                && graph.arg_dims(&op, "x").is_some_and(|dims| dims.len() == 4 && dims[2] == 1)
        };
        if !linear_maps(graph).any(in_layout) {
            return;
        }
        for op in graph.runtime_ops().filter(|op| matches!(op.kind(), "transpose" | "reshape")) {
            let (Some(x), Some(id)) = (graph.arg(&op, "x"), op.output()) else { continue };
            let is_half = graph.ty(id).is_some_and(|ty| ty.dtype == DType::F16);
            let (Some(from), Some(to)) = (graph.dims(x), graph.dims(id)) else { continue };
            if is_half && count(&from) >= SMALL && touches_last(graph, &op, &from, &to) {
                sink.op(graph, &op, format!("turns {:?} into {:?}", &from[..], &to[..]));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::moved([0, 3, 2, 1]), || examples::moved([0, 2, 1, 3])),
    ..Rule::warning("A39", "last-axis-moved", Documented)
};

fn touches_last(graph: &Graph<'_>, op: &Op<'_>, from: &[usize], to: &[usize]) -> bool {
    match op.kind() {
        "transpose" => {
            let order = graph.ints(op, "perm").unwrap_or_default();
            order.last().and_then(|&axis| shape::axis(axis, from.len())) != Some(from.len().saturating_sub(1))
        }
        _ => from.last() != to.last(),
    }
}

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn moved(order: [i32; 4]) -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            let y = conv(b, x, (64, 64));
            b.op("transpose").arg("x", y).arg("perm", order).push().unwrap()
        })
    }
}
