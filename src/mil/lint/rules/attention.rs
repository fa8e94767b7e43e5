//! Attention.

use super::pattern::{ACTIVATION_PRODUCTS, comes_from};
use super::*;

/// Keys from which the axis of the softmax matters; a threshold of this project.
const LARGE: usize = 1024;

pub(super) static FUSED_ATTENTION: Rule = Rule {
    title: "attention as one operation",
    why: "The Neural Engine has no fused kernel for `scaled_dot_product_attention`: it is taken apart anyway, and on \
          iOS 26 the result had wrong numerics.",
    evidence: &[
        "apple/coreai-models, neural_engine_rules: no fused attention on the Neural Engine",
        "pytorch/executorch issues 15833, 16057 and 16144: wrong numerics on iOS 26, now decomposed",
        "john-rocky/CoreML-LLM, SDPA_FUSION_PROBE: not fused",
    ],
    remedy: "write it as product, mask, softmax, product",
    check: Check::Shape(|graph, setting, sink| {
        let is_wrong = setting.target.opset() >= crate::Opset::Ios26;
        let message = if is_wrong { "has had wrong numerics on this target" } else { "is not fused" };
        sink.op_types(graph, &["scaled_dot_product_attention"], message);
    }),
    #[cfg(test)]
    examples: (examples::fused, || examples::softmax_of(&[1, 64, 4, 32], 1)),
    ..Rule::warning("A29", "fused-attention", Documented)
};

pub(super) static SOFTMAX_OVER_SPATIAL_AXIS: Rule = Rule {
    title: "softmax over a long axis that is not the channels",
    why: "Softmax over a spatial axis limits how the compiler can split the work. Apple places keys on the channel \
          axis; other projects keep them last and are placed all the same. Reported from 1024 keys on.",
    evidence: &[
        "apple/coreai-models and apple/ml-ane-transformers: softmax over dimension 1, mask (1, key, 1, query)",
        "Anemll: softmax over the last axis, and on the Neural Engine",
    ],
    remedy: "measure the form with keys on axis 1; no published figure compares the two",
    check: Check::Shape(|graph, _, sink| {
        for (op, axis, size, rank) in softmaxes(graph) {
            if rank >= 3 && axis != 1 && size >= LARGE {
                let message = format!("runs over {size} elements of axis {axis}, not over the channels");
                sink.at(graph, Place::op(graph, &op).dimension(axis), message);
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::softmax_of(&[1, 4, 32, 1024], -1), || examples::softmax_of(&[1, 1024, 4, 32], 1)),
    ..Rule::warning("A30", "softmax-over-spatial-axis", Documented)
};

/// Every softmax with its axis, the axis's size and the rank.
fn softmaxes<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = (Op<'m>, usize, usize, usize)> + 'g {
    graph.runtime_ops().filter(|op| op.kind() == "softmax").filter_map(|op| {
        let dims = graph.arg_dims(&op, "x")?;
        let axis = shape::axis(graph.int(&op, "axis").unwrap_or(-1), dims.len())?;
        Some((op, axis, dims[axis], dims.len()))
    })
}

pub(super) static UNALIGNED_SOFTMAX: Rule = Rule {
    title: "softmax over an uneven length",
    why: "Lengths that are neither a power of two nor a multiple of 32 were refused by the compiler in a private path; \
          through Core ML nothing of the sort is known.",
    evidence: &["hollance/neural-engine issue 44"],
    remedy: "pad the axis to a multiple of 32 if the function is not placed",
    check: Check::Shape(|graph, _, sink| {
        for (op, axis, size, _) in softmaxes(graph) {
            if !size.is_power_of_two() && size % 32 != 0 {
                sink.at(graph, Place::op(graph, &op).dimension(axis), format!("runs over {size} elements"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::softmax_of(&[1, 33, 4, 32], 1), || examples::softmax_of(&[1, 96, 4, 32], 1)),
    ..Rule::info("A31", "unaligned-softmax", SingleReport).decided_by("enumerate_shapes")
};

pub(super) static SCORES_SCALED_LATE: Rule = Rule {
    title: "scores are scaled after the product",
    why: "Products of queries and keys before scaling may exceed 65504, the largest fp16 number: infinity, and NaN \
          after the softmax.",
    evidence: &["apple/coreai-models, sdpa.py: keys are scaled before the product to stay within fp16"],
    remedy: "scale queries or keys before the product; the factor can be folded into their weights",
    check: Check::Function(|graph, _, sink| {
        for op in graph.runtime_ops().filter(|op| op.kind() == "softmax") {
            if let Some(scaling) = graph.arg(&op, "x").and_then(|scores| scaling(graph, scores)) {
                sink.op(graph, &scaling, "scales scores after their product");
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::scores(true), || examples::scores(false)),
    ..Rule::warning("A33", "scores-scaled-late", Documented)
};

/// The operation that scales a product on its way into a softmax, behind masks.
fn scaling<'m>(graph: &Graph<'m>, mut scores: ValueId) -> Option<Op<'m>> {
    const STEPS: usize = 3;
    let is_score =
        |id| comes_from(graph, id, &["mul", "real_div"], 1) || comes_from(graph, id, ACTIVATION_PRODUCTS, 1);
    for _ in 0..STEPS {
        let op = graph.producer(scores)?;
        let (x, y) = (graph.arg(&op, "x")?, graph.arg(&op, "y"));
        match (op.kind(), y) {
            ("mul" | "real_div", Some(y)) => {
                let (varying, number) = if graph.is_constant(x) { (y, x) } else { (x, y) };
                let factor = graph.number(number)?;
                return (factor != 1.0 && comes_from(graph, varying, ACTIVATION_PRODUCTS, 1)).then_some(op);
            }
            ("add", Some(y)) if !is_score(x) => scores = y,
            ("add" | "cast" | "reshape", _) => scores = x,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod examples {
    use super::*;
    use half::f16;

    pub(super) fn fused() -> Case {
        case(|b| {
            let [q, k, v] = ["q", "k", "v"].map(|name| input(b, name, DType::F16, &[1, 4, 32, 64]));
            let op = b.op("scaled_dot_product_attention").arg("query", q).arg("key", k).arg("value", v);
            vec![op.push().unwrap()]
        })
    }

    pub(super) fn softmax_of(dims: &[usize], axis: i32) -> Case {
        on_input(dims, |b, x| softmax(b, x, axis))
    }

    pub(super) fn scores(late: bool) -> Case {
        case(|b| {
            let q = input(b, "q", DType::F16, &[1, 4, 32, 64]);
            let k = input(b, "k", DType::F16, &[1, 4, 64, 32]);
            let mask = input(b, "mask", DType::F16, &[1, 1, 32, 32]);
            let factor = f16::from_f32(0.125);
            let q = if late { q } else { b.op("mul").arg("x", q).arg("y", factor).push().unwrap() };
            let mut scores = matmul(b, q, k);
            if late {
                scores = b.op("mul").arg("x", scores).arg("y", factor).push().unwrap();
            }
            let scores = binary(b, "add", scores, mask);
            vec![softmax(b, scores, -1)]
        })
    }
}
