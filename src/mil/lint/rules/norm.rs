//! Norms.

use super::flexible_shape::is_enumerated;
use super::pattern::comes_from;
use super::*;

/// How far back a scaling may be: multiply, centre, square.
const STEPS: usize = 5;

pub(super) static UNSCALED_SUM_OF_SQUARES: Rule = Rule {
    title: "squares are averaged without scaling first",
    why: "The square of any fp16 number beyond 256 overflows. A root mean square written as mean(x * x) turns one large \
          activation into infinity, and the whole vector into zeros.",
    evidence: &[
        "apple/coremltools, ops.py at rms_norm: divide by the largest magnitude first, error below 0.1 %",
        "Anemll: layer_norm of x beside -x instead",
    ],
    remedy: "divide by the largest magnitude before squaring, or use layer_norm of [x, -x]",
    check: Check::Function(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let Some(x) = graph.arg(&op, "x") else { continue };
            let squared = match op.kind() {
                "reduce_sum_square" | "reduce_l2_norm" => Some(x),
                "reduce_mean" | "reduce_sum" => square_of(graph, x),
                _ => None,
            };
            let is_half = graph.ty(x).is_some_and(|ty| ty.dtype == DType::F16);
            if let Some(base) =
                squared.filter(|&base| is_half && !comes_from(graph, base, &["reduce_max"], STEPS))
            {
                sink.op(graph, &op, format!("sums squares of `{}` as it is", graph.name(base)));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::rms(false), || examples::rms(true)),
    ..Rule::warning("A34", "unscaled-sum-of-squares", Documented)
};

/// What is squared, if a value is a square.
fn square_of(graph: &Graph<'_>, id: ValueId) -> Option<ValueId> {
    let op = graph.producer(id)?;
    let (x, y) = (graph.arg(&op, "x")?, graph.arg(&op, "y"));
    match op.kind() {
        "square" => Some(x),
        "mul" if y == Some(x) => Some(x),
        "pow" => (graph.number(y?)? == 2.0).then_some(x),
        _ => None,
    }
}

pub(super) static RANK_3_LAYER_NORM: Rule = Rule {
    title: "layer_norm of rank 3 under enumerated shapes",
    why: "On macOS 13 such a layer_norm left the Neural Engine once shapes were enumerated. Later systems are not \
          reported.",
    evidence: &["apple/coremltools issue 1909"],
    remedy: "normalise rank 4 tensors over the channels if the function is not placed",
    check: Check::Function(|graph, _, sink| {
        if !is_enumerated(graph.interface) {
            return;
        }
        for op in graph.runtime_ops().filter(|op| op.kind() == "layer_norm") {
            if graph.arg_ty(&op, "x").is_some_and(|ty| ty.rank() == Some(3)) {
                sink.op(graph, &op, "has rank 3 and enumerated shapes");
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::layer_norm(2), || examples::layer_norm(1)),
    ..Rule::info("A35", "rank-3-layer-norm", SingleReport)
};

#[cfg(test)]
mod examples {
    use super::*;
    use crate::{Dim, TensorType};

    pub(super) fn rms(scaled: bool) -> Case {
        on_input(&[1, 64, 1, 32], |b, mut x| {
            if scaled {
                let magnitude = unary(b, "abs", x);
                let largest = reduce(b, "reduce_max", magnitude, 1);
                x = binary(b, "real_div", x, largest);
            }
            let squares = binary(b, "mul", x, x);
            reduce(b, "reduce_mean", squares, 1)
        })
    }

    pub(super) fn layer_norm(shapes: u64) -> Case {
        let case = case(|b| {
            let x =
                b.input("x", TensorType::new(DType::F16, vec![1usize.into(), Dim::Unknown, 64usize.into()]));
            vec![b.op("layer_norm").arg("x", x).arg("axes", [2]).push().unwrap()]
        });
        let shapes: Vec<_> = (1..=shapes).map(|n| vec![1, 32 * n, 64]).collect();
        case.enumerated("x", &shapes)
    }
}
