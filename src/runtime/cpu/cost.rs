//! What a step moves and computes, for comparison with what the machine can do.

use super::plan::{Operand, Place, Plan, Step};
use crate::mil::op::KnownValue;
use crate::tensor::Shape;

/// Bytes and operations of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    /// Bytes of all arguments and results, weights as they are stored. Of a table only some rows may be read.
    pub(super) bytes: usize,
    /// Floating-point operations of a product, a multiply-add being two; zero for anything else.
    pub(super) flops: usize,
}

impl Cost {
    /// The cost of a step; `size` tells the bytes of a value that is no constant.
    pub(super) fn of(step: &Step, plan: &Plan, size: impl Fn(usize) -> usize) -> Cost {
        let constant = |constant: usize| match &plan.constants[constant].value {
            KnownValue::Tensor(tensor) => tensor.bytes().len(),
            KnownValue::Packed(weight) => weight.stored_bytes(),
        };
        let read = step.arguments.iter().flatten().map(|operand| match *operand {
            Operand::Constant(index) => constant(index),
            Operand::Value(value) => match plan.values[value].place {
                Place::Constant(index) => constant(index),
                _ => size(value),
            },
        });
        let written = step.outputs.iter().map(|&value| size(value));
        Cost { bytes: read.chain(written).sum(), flops: flops(step, plan).unwrap_or(0) }
    }
}

/// Bytes of results below which other threads take longer to wake than the plan takes.
const BRIEF: usize = 1 << 14;

/// Whether a plan only moves a few numbers about, such as the vector of one token.
pub(super) fn is_brief(plan: &Plan) -> bool {
    let moves = |step: &Step| !step.dynamic && flops(step, plan).is_none();
    plan.arena_bytes < BRIEF && plan.steps.iter().all(moves)
}

fn flops(step: &Step, plan: &Plan) -> Option<usize> {
    let shape_of = |operand: &Operand| match *operand {
        Operand::Constant(constant) => plan.constants[constant].ty.tensor()?.concrete(),
        Operand::Value(value) => plan.values[value].ty.tensor()?.concrete(),
    };
    let shape = |name: &str| -> Option<Shape> { shape_of(step.argument(name)?.first()?) };
    if super::fuse::PRODUCTS.contains(&step.def.name) {
        let elements = |weight| Some(shape_of(weight)?.iter().product::<usize>());
        return Some(2 * step.argument("weight")?.iter().map(elements).sum::<Option<usize>>()?);
    }
    let out = plan.values[*step.outputs.first()?].shape.as_ref()?;
    let elements: usize = out.iter().product();
    let depth = match step.def.name {
        "conv" | "linear" => shape("weight")?.get(1..)?.iter().product(),
        "matmul" => {
            let plane = |shape: &[usize]| shape.iter().rev().take(2).product::<usize>() as f64;
            // The product of [m, k] and [k, n] over that of [m, n] is the square of k.
            (plane(&shape("x")?) * plane(&shape("y")?) / plane(out).max(1.0)).sqrt().round() as usize
        }
        // Two products over all keys, also those that no query of a block sees; values are as wide as keys.
        super::fuse::ATTENTION => 2 * shape("mask")?.last()?,
        // The token's own value takes no product.
        super::fuse::TOKEN_ATTENTION => 2 * shape("mask")?.last()? + usize::from(shape("own_key").is_some()),
        _ => return None,
    };
    elements.checked_mul(depth)?.checked_mul(2)
}

#[cfg(test)]
mod tests {
    use super::super::fold_options;
    use super::super::planner::plan;
    use super::*;
    use crate::mil::op::Numerics;
    use crate::mil::{Builder, Function, Opset, TensorType, propagate};
    use crate::tensor::DType;

    fn is_brief_plan(function: &Function) -> bool {
        let (facts, findings) = propagate::propagate(function, &[], fold_options(Numerics::Fast, true));
        assert_eq!(findings, []);
        is_brief(&plan(function, facts, true).unwrap())
    }

    /// A sum, or a product with itself.
    fn function(kind: &str, width: usize) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &[width, width]));
        let y = f.op(kind).arg("x", x).arg("y", x).push().unwrap();
        f.finish(&[y])
    }

    #[test]
    fn only_what_moves_a_few_numbers_is_brief() {
        assert!(is_brief_plan(&function("add", 16)));
        assert!(!is_brief_plan(&function("add", 128)), "too many numbers");
        assert!(!is_brief_plan(&function("matmul", 16)), "products are worth other threads");
    }
}
