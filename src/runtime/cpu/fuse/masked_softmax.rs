//! Masked softmax, `softmax(add(scores, mask))`, where attention as a whole was not recognised: one pass less over the
//! scores, and no rounding between the two.

use half::f16;
use smallvec::smallvec;

use super::graph::Graph;
use super::{FusedStep, REDUCTION, fused_op};
use anemeter_kernels::softmax::softmax_masked;
use anemeter_mil::op::domain::FLOAT;
use anemeter_mil::op::{Call, OpDef, OpError, Outputs, Param};

static MASKED_SOFTMAX: OpDef = fused_op(
    "masked softmax (fused)",
    REDUCTION,
    &[Param::value("x", FLOAT), Param::value("mask", FLOAT)],
    eval,
);

/// Looks for a softmax along the last axis whose mask repeats over the outer dimensions of the scores.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<FusedStep> {
    if !graph.is(out, "softmax") {
        return None;
    }
    let sum = graph.made_by(graph.argument(out, "x")?, "add").filter(|&step| graph.is_used(step, 1))?;
    let (x, mask) = (graph.argument(sum, "x")?, graph.argument(sum, "y")?);
    let (scores, seen) = (graph.half_shape(x)?, graph.half_shape(mask)?);
    let last = graph.is_along(out, scores.len().checked_sub(1)?, scores.len());
    let inner = &seen[seen.iter().position(|&size| size != 1).unwrap_or(seen.len())..];
    let repeats = seen.len() <= scores.len() && !inner.is_empty() && scores.ends_with(inner);
    let fused =
        || FusedStep::new(&MASKED_SOFTMAX, graph, out, vec![smallvec![x], smallvec![mask]], vec![sum, out]);
    (last && repeats).then(fused)
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (x, mask) = (call.tensor("x")?, call.tensor("mask")?);
    let &length = x.shape().last().expect("scores have a last axis, along which the softmax is");
    softmax_masked::<f16>(x.slice()?, mask.slice()?, outputs.tensor(0)?.slice()?, length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{executed_with, halves};
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Function, Opset, TensorType};

    fn attention(mask: &[usize], shown: bool) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &[2, 3, 4, 19]));
        let mask = f.input("mask", TensorType::fixed(DType::F16, mask));
        let sum = f.op("add").arg("x", x).arg("y", mask).push().unwrap();
        let out = f.op("softmax").arg("x", sum).arg("axis", -1).push().unwrap();
        let outputs = [out, sum];
        f.finish(&outputs[..if shown { 2 } else { 1 }])
    }

    #[test]
    fn masked_softmax_in_one_step_gives_what_the_steps_give() {
        let x = halves(&[2, 3, 4, 19], |i| ((i * 37 % 101) as f32 - 50.0) * 0.1);
        for shape in [&[1, 1, 4, 19][..], &[19], &[1, 3, 4, 19]] {
            let mask = halves(shape, |i| if i * 7 % 5 == 0 { -1e4 } else { 0.0 });
            let (fused, kinds) = executed_with(attention(shape, false), &[("x", &x), ("mask", &mask)]);
            assert_eq!(kinds, ["masked softmax (fused)"], "{shape:?}");
            let (plain, kinds) = executed_with(attention(shape, true), &[("x", &x), ("mask", &mask)]);
            assert_eq!(kinds, ["add", "softmax"]);
            // The sum of a score and zero is not rounded, and what is masked vanishes in both.
            assert_eq!(fused, plain, "{shape:?}");
        }
    }

    #[test]
    fn a_mask_that_does_not_repeat_is_added_on_its_own() {
        let x = halves(&[2, 3, 4, 19], |i| i as f32 / 100.0);
        let mask = halves(&[2, 1, 4, 19], |_| 0.0);
        let (_, kinds) = executed_with(attention(&[2, 1, 4, 19], false), &[("x", &x), ("mask", &mask)]);
        assert_eq!(kinds, ["add", "softmax"]);
    }
}
