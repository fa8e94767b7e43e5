//! Attention.

use super::pattern::comes_from;
use super::*;

/// Keys from which the axis of the softmax matters; a threshold of this project.
const LARGE: usize = 1024;
const PRODUCTS: &[&str] = &["matmul", "einsum"];

pub(super) static A29: Rule = Rule {
    id: "A29",
    title: "attention as one operation",
    severity: Severity::Warning,
    confidence: Confidence::Documented,
    why: "The Neural Engine has no fused kernel for `scaled_dot_product_attention`: it is taken apart anyway, and on \
          iOS 26 the result had wrong numerics.",
    evidence: &[
        "apple/coreai-models, neural_engine_rules: no fused attention on the Neural Engine",
        "pytorch/executorch issues 15833, 16057 and 16144: wrong numerics on iOS 26, now decomposed",
        "john-rocky/CoreML-LLM, SDPA_FUSION_PROBE: not fused",
    ],
    remedy: "write it as product, mask, softmax, product",
    off: false,
    needs: Needs::Package,
    check: Check::Shape(|graph, setting, sink| {
        for op in graph.runtime_ops().filter(|op| op.kind() == "scaled_dot_product_attention") {
            let is_wrong = setting.target.opset() >= crate::mil::Opset::Ios26;
            let message = if is_wrong { "has had wrong numerics on this target" } else { "is not fused" };
            sink.op(graph, &op, message);
        }
    }),
    #[cfg(test)]
    examples: (examples::fused, examples::by_channel),
};

pub(super) static A30: Rule = Rule {
    id: "A30",
    title: "softmax over a long axis that is not the channels",
    severity: Severity::Warning,
    confidence: Confidence::Documented,
    why: "Softmax over a spatial axis limits how the compiler can split the work. Apple places keys on the channel \
          axis; other projects keep them last and are placed all the same. Reported from 1024 keys on.",
    evidence: &[
        "apple/coreai-models and apple/ml-ane-transformers: softmax over dimension 1, mask (1, key, 1, query)",
        "Anemll: softmax over the last axis, and on the Neural Engine",
    ],
    remedy: "measure the form with keys on axis 1; no published figure compares the two",
    off: false,
    needs: Needs::Package,
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
};

/// Every softmax with its axis, the axis's size and the rank.
fn softmaxes<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = (Op<'m>, usize, usize, usize)> + 'g {
    graph.runtime_ops().filter(|op| op.kind() == "softmax").filter_map(|op| {
        let dims = graph.arg_dims(&op, "x")?;
        let axis = shape::axis(graph.int(&op, "axis").unwrap_or(-1), dims.len())?;
        Some((op, axis, dims[axis], dims.len()))
    })
}

pub(super) static A31: Rule = Rule {
    id: "A31",
    title: "softmax over an uneven length",
    severity: Severity::Info,
    confidence: Confidence::SingleReport,
    why: "Lengths that are neither a power of two nor a multiple of 32 were refused by the compiler in a private path; \
          through Core ML nothing of the sort is known.",
    evidence: &["hollance/neural-engine issue 44"],
    remedy: "pad the axis to a multiple of 32 if the function is not placed",
    off: false,
    needs: Needs::Package,
    check: Check::Shape(|graph, _, sink| {
        for (op, axis, size, _) in softmaxes(graph) {
            if !size.is_power_of_two() && size % 32 != 0 {
                sink.at(graph, Place::op(graph, &op).dimension(axis), format!("runs over {size} elements"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::softmax_of(&[1, 33, 4, 32], 1), || examples::softmax_of(&[1, 96, 4, 32], 1)),
};

pub(super) static A33: Rule = Rule {
    id: "A33",
    title: "scores are scaled after the product",
    severity: Severity::Warning,
    confidence: Confidence::Documented,
    why: "Products of queries and keys before scaling may exceed 65504, the largest fp16 number: infinity, and NaN \
          after the softmax.",
    evidence: &["apple/coreai-models, sdpa.py: keys are scaled before the product to stay within fp16"],
    remedy: "scale queries or keys before the product; the factor can be folded into their weights",
    off: false,
    needs: Needs::Package,
    check: Check::Function(|graph, _, sink| {
        for op in graph.runtime_ops().filter(|op| op.kind() == "softmax") {
            if let Some(scaling) = graph.arg(&op, "x").and_then(|scores| scaling(graph, scores)) {
                sink.op(graph, &scaling, "scales scores after their product");
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::scores(true), || examples::scores(false)),
};

/// The operation that scales a product on its way into a softmax, behind masks.
fn scaling<'m>(graph: &Graph<'m>, mut scores: ValueId) -> Option<Op<'m>> {
    const STEPS: usize = 3;
    for _ in 0..STEPS {
        let op = graph.producer(scores)?;
        let (x, y) = (graph.arg(&op, "x")?, graph.arg(&op, "y"));
        match (op.kind(), y) {
            ("mul" | "real_div", Some(y)) => {
                let (varying, number) = if graph.is_constant(x) { (y, x) } else { (x, y) };
                let factor = graph.number(number)?;
                return (factor != 1.0 && comes_from(graph, varying, PRODUCTS, 1)).then_some(op);
            }
            ("add", Some(y)) if !comes_from(graph, x, &["mul", "real_div", "matmul", "einsum"], 1) => {
                scores = y;
            }
            ("add" | "cast" | "reshape", _) => scores = x,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod examples {
    use super::super::super::testing::*;
    use crate::tensor::DType;
    use half::f16;

    pub(super) fn fused() -> Case {
        case(|b| {
            let [q, k, v] = ["q", "k", "v"].map(|name| input(b, name, DType::F16, &[1, 4, 32, 64]));
            let op = b.op("scaled_dot_product_attention").arg("query", q).arg("key", k).arg("value", v);
            vec![op.push().unwrap()]
        })
    }

    pub(super) fn by_channel() -> Case {
        softmax_of(&[1, 64, 4, 32], 1)
    }

    pub(super) fn softmax_of(dims: &[usize], axis: i32) -> Case {
        case(|b| {
            let x = x(b, dims);
            vec![softmax(b, x, axis)]
        })
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
