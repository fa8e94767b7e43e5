//! The elementwise part of a SwiGLU MLP (Shazeer 2020): `mul(mul(x, sigmoid(x)), y)` is `silu(x) y`, rounded once.

use half::f16;
use smallvec::smallvec;

use super::graph::Graph;
use super::{FusedStep, fused_op};
use anemeter_kernels::elementwise::gated_silu;
use anemeter_mil::op::domain::FLOAT;
use anemeter_mil::op::{Call, OpClass, OpDef, OpError, Outputs, Param};

pub(super) const KIND: &str = "gated silu (fused)";

static GATED_SILU: OpDef =
    fused_op(KIND, OpClass::Elementwise, &[Param::value("x", FLOAT), Param::value("y", FLOAT)], eval);

/// Looks for the product that ends the pattern.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<FusedStep> {
    if !graph.is(out, "mul") {
        return None;
    }
    let (silu, y) = (graph.argument(out, "x")?, graph.argument(out, "y")?);
    let product = graph.made_by(silu, "mul").filter(|&step| graph.is_used(step, 1))?;
    let (x, gate) = (graph.argument(product, "x")?, graph.argument(product, "y")?);
    let sigmoid = graph.made_by(gate, "sigmoid").filter(|&step| graph.is_used(step, 1))?;
    let same =
        Graph::same(graph.argument(sigmoid, "x")?, x) && graph.half_shape(x)? == graph.half_shape(y)?;
    same.then(|| {
        FusedStep::new(&GATED_SILU, graph, out, vec![smallvec![x], smallvec![y]], vec![sigmoid, product, out])
    })
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (x, y) = (call.tensor("x")?, call.tensor("y")?);
    gated_silu::<f16>(x.slice()?, y.slice()?, outputs.tensor(0)?.slice()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{executed_with, halves};
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Function, Opset, TensorType};

    fn gated(shown: bool) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &[1, 40, 1, 3]));
        let y = f.input("y", TensorType::fixed(DType::F16, &[1, 40, 1, 3]));
        let gate = f.op("sigmoid").arg("x", x).push().unwrap();
        let silu = f.op("mul").arg("x", x).arg("y", gate).push().unwrap();
        let out = f.op("mul").arg("x", silu).arg("y", y).push().unwrap();
        let outputs = [out, gate];
        f.finish(&outputs[..if shown { 2 } else { 1 }])
    }

    #[test]
    fn gated_silu_in_one_step_gives_what_the_steps_give() {
        let x = halves(&[1, 40, 1, 3], |i| ((i * 37 % 101) as f32 - 50.0) * 0.2);
        let y = halves(&[1, 40, 1, 3], |i| ((i * 29 % 97) as f32 - 48.0) * 0.1);
        let (fused, kinds) = executed_with(gated(false), &[("x", &x), ("y", &y)]);
        assert_eq!(kinds, [KIND]);
        let (plain, kinds) = executed_with(gated(true), &[("x", &x), ("y", &y)]);
        assert_eq!(kinds, ["sigmoid", "mul", "mul"]);
        // The steps round twice more; a rounding is 2^-11 of the size, or half the least number.
        for (fused, plain) in fused.iter().zip(&plain) {
            assert!((fused - plain).abs() <= plain.abs() * 3.0 / 2048.0 + 1e-5, "{fused} for {plain}");
        }
    }
}
