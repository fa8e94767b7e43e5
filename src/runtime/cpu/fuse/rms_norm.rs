//! Root mean square norm in the form that fp16 holds: divided by the largest magnitude first.
//!
//! With `d = max(largest |x|, floor)`, the steps compute `x/d` times the inverse root of
//! `mean((x/d)^2) + (root/d)^2 + tiny`, times the weight; that is `x / sqrt(mean(x^2) + root^2 + tiny d^2)`
//! times the weight, which f32 holds as it is.

use half::f16;
use smallvec::smallvec;

use super::graph::Graph;
use super::{FusedStep, REDUCTION, fused_op};
use crate::cpu::plan::Operand;
use anemeter_kernels::rms_norm::{Epsilon, rms_norm};
use anemeter_kernels::tensor::shape;
use anemeter_mil::op::domain::{FLOAT, INT};
use anemeter_mil::op::{Call, OpDef, OpError, Outputs, Param};

pub(super) const KIND: &str = "rms norm (fused)";

/// What a norm takes beside its weight.
pub(super) const PARAMS: [Param; 4] = [
    Param::constant("axes", INT).optional(),
    Param::constant("floor", FLOAT).optional(),
    Param::constant("root", FLOAT).or_float(0.0),
    Param::constant("tiny", FLOAT).or_float(1e-12),
];

static RMS_NORM: OpDef = fused_op(
    KIND,
    REDUCTION,
    &[Param::value("x", FLOAT), Param::value("weight", FLOAT), PARAMS[0], PARAMS[1], PARAMS[2], PARAMS[3]],
    eval,
);

/// Looks for the norm that ends with the product with its weight.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<FusedStep> {
    let value = |step: usize, name: &str| graph.argument(step, name);
    let once = |operand: Operand, kind: &str| graph.made_by(operand, kind).filter(|&s| graph.is_used(s, 1));
    if !graph.is(out, "mul") {
        return None;
    }
    let weight = value(out, "y")?;
    let normal = once(value(out, "x")?, "mul")?;
    let scaled = graph.made_by(value(normal, "x")?, "mul").filter(|&s| graph.is_used(s, 3))?;
    let inverse = once(value(normal, "y")?, "rsqrt")?;
    let (variance, epsilon) = match once(value(inverse, "x")?, "add") {
        Some(sum) => (once(value(sum, "x")?, "reduce_mean")?, Some((sum, value(sum, "y")?))),
        None => (once(value(inverse, "x")?, "reduce_mean")?, None),
    };
    let squares = once(value(variance, "x")?, "mul")?;
    let (x, factor) = (value(scaled, "x")?, value(scaled, "y")?);
    let divided = graph.made_by(factor, "real_div")?;
    let mut replaces = vec![normal, scaled, inverse, variance, squares, divided, out];
    let root = match epsilon {
        None => None,
        Some((sum, epsilon)) => {
            let square = once(epsilon, "mul")?;
            let root = graph.made_by(value(square, "x")?, "mul").filter(|&s| graph.is_used(s, 2))?;
            let own = Graph::same(value(square, "x")?, value(square, "y")?);
            replaces.extend([sum, square, root]);
            (own && Graph::same(value(root, "x")?, factor)).then_some(())?;
            Some(value(root, "y")?)
        }
    };
    let divisor = once(value(divided, "y")?, "maximum")?;
    let largest = once(value(divisor, "x")?, "reduce_max")?;
    let magnitude = once(value(largest, "x")?, "abs")?;
    replaces.extend([divisor, largest, magnitude]);
    let axes = value(variance, "axes")?;
    let holds = graph.is_used(divided, 1 + usize::from(root.is_some()))
        && Graph::same(value(magnitude, "x")?, x)
        && [("x", squares), ("y", squares)]
            .iter()
            .all(|(name, step)| value(*step, name).is_some_and(|v| graph.made_by(v, "mul") == Some(scaled)))
        && graph.numbers(value(divided, "x")?)? == [1.0]
        && graph.numbers(axes)? == graph.numbers(value(largest, "axes")?)?
        && lies_along(graph, x, weight, axes)?;
    if !holds {
        return None;
    }
    let given = |operand: Option<Operand>| operand.into_iter().collect();
    let arguments = vec![
        smallvec![x],
        smallvec![weight],
        smallvec![axes],
        given(value(divisor, "y")),
        given(root),
        given(value(inverse, "epsilon")),
    ];
    Some(FusedStep::new(&RMS_NORM, graph, out, arguments, replaces))
}

/// Whether a weight has an element for each position of the one axis that is reduced, and no other.
fn lies_along(graph: &Graph<'_>, x: Operand, weight: Operand, axes: Operand) -> Option<bool> {
    let (x, weight) = (graph.half_shape(x)?, graph.half_shape(weight)?);
    let &[axis] = &graph.numbers(axes)?[..] else { return None };
    let axis = shape::axis(axis as i64, x.len())?;
    let expected = (0..x.len()).map(|i| if i == axis { x[i] } else { 1 });
    Some(weight.len() == x.len() && weight.iter().copied().eq(expected))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (x, weight) = (call.tensor("x")?, call.tensor("weight")?);
    let axis = call.ints("axes")?.first().and_then(|&axis| shape::axis(axis, x.rank()));
    let axis = axis.ok_or_else(|| OpError::new("`axes` is not one of `x`"))?;
    let inner = x.shape()[axis + 1..].iter().product();
    let out = outputs.tensor(0)?.slice::<f16>()?;
    rms_norm(x.slice::<f16>()?, weight.slice::<f16>()?, inner, epsilon(call)?, out);
    Ok(())
}

/// What a norm adds to the mean of squares.
pub(super) fn epsilon(call: &Call<'_>) -> Result<Epsilon, OpError> {
    Ok(Epsilon { floor: call.float("floor")?, root: call.float("root")?, tiny: call.float("tiny")? })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{executed, halves, push_norm};
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Function, Opset, TensorType};

    /// The norm of channels as an export writes it; with `shown`, an intermediate value leaves the function.
    fn norm(shape: [usize; 4], root: Option<f32>, shown: bool) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &shape));
        let outputs = push_norm(&mut f, x, shape[1], root);
        f.finish(&outputs[..if shown { 2 } else { 1 }])
    }

    #[test]
    fn rms_norm_in_one_step_gives_what_the_steps_give() {
        for shape in [[1, 48, 1, 1], [1, 40, 1, 37], [2, 16, 1, 5]] {
            for root in [Some(0.003), None] {
                let x = halves(&shape, |i| ((i * 37 % 101) as f32 - 50.0) * 0.3);
                let (fused, kinds) = executed(norm(shape, root, false), &x);
                assert_eq!(kinds, ["rms norm (fused)"]);
                let (plain, kinds) = executed(norm(shape, root, true), &x);
                assert!(!kinds.contains(&"rms norm (fused)".to_owned()));
                // The steps round eight times on the way; a single rounding is 2^-11 of the size.
                for (fused, plain) in fused.iter().zip(&plain) {
                    assert!(
                        (fused - plain).abs() <= plain.abs() * 8.0 / 2048.0 + 1e-4,
                        "{fused} for {plain}"
                    );
                }
            }
        }
    }
}
