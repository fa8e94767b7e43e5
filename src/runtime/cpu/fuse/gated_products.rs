//! The first half of a SwiGLU MLP for one token: `silu(W_gate x) (W_up x)` as one GEMV over the rows of both weights,
//! with the RMS norm before it.

use half::f16;

use super::gated_silu;
use super::graph::Graph;
use super::product::{PARAMS, Product, products};
use super::{FusedStep, PRODUCT, fused_op};
use anemeter_kernels::convert::convert;
use anemeter_kernels::elementwise::gated_silu;
use anemeter_mil::op::{Call, OpDef, OpError, Outputs};

const KIND: &str = "gated products (fused)";

static GATED_PRODUCTS: OpDef = fused_op(KIND, PRODUCT, &PARAMS, eval);

/// Looks for the gated product that ends the pattern.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<FusedStep> {
    if !graph.is(out, gated_silu::KIND) {
        return None;
    }
    let gate = graph.made_for(1, graph.argument(out, "x")?, "conv")?;
    let value = graph.made_for(1, graph.argument(out, "y")?, "conv")?;
    let pair = [Product::of(graph, gate)?, Product::of(graph, value)?];
    let fits = Graph::same(pair[0].x, pair[1].x) && !graph.changes_memory(gate.min(value)..out);
    let (arguments, norm) = Product::arguments(graph, &pair).filter(|_| fits)?;
    let steps = [gate, value, out].into_iter().chain(norm).collect();
    Some(FusedStep::new(&GATED_PRODUCTS, graph, out, arguments, steps))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (out, scratch) = outputs.with_scratch(0)?;
    let out = out.slice::<f16>()?;
    let (sums, wide) = products(call, scratch, out.len())?;
    let (gate, value) = sums.split_at(out.len());
    gated_silu::<f32>(gate, value, wide);
    convert(wide, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counted_with, halves, push_norm, sum};
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Function, Opset, TensorType};

    fn mlp(shown: bool, normed: bool) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let mut x = f.input("x", TensorType::fixed(DType::F16, &[1, 64, 1, 1]));
        if normed {
            x = push_norm(&mut f, x, 64, Some(0.01))[0];
        }
        let weight = |seed: usize| halves(&[40, 64, 1, 1], |i| (i * seed % 17) as f32 / 17.0 - 0.5);
        let gate = f.op("conv").arg("x", x).arg("weight", &weight(5)).push().unwrap();
        let value = f.op("conv").arg("x", x).arg("weight", &weight(7)).push().unwrap();
        let sigmoid = f.op("sigmoid").arg("x", gate).push().unwrap();
        let silu = f.op("mul").arg("x", gate).arg("y", sigmoid).push().unwrap();
        let out = f.op("mul").arg("x", silu).arg("y", value).push().unwrap();
        let outputs = [out, value];
        f.finish(&outputs[..if shown { 2 } else { 1 }])
    }

    #[test]
    fn gated_products_in_one_step_give_what_the_steps_give() {
        let x = halves(&[1, 64, 1, 1], |i| (i * 11 % 23) as f32 / 23.0 - 0.4);
        for normed in [false, true] {
            let (fused, steps) = counted_with(mlp(false, normed), &[("x", &x)]);
            let [(kind, flops)] = &steps[..] else { panic!("{steps:?}") };
            assert_eq!(kind, KIND);
            let (plain, steps) = counted_with(mlp(true, normed), &[("x", &x)]);
            assert!(steps.iter().all(|(kind, _)| kind != KIND), "the value leaves the function");
            assert_eq!(*flops, sum(&steps));
            // The steps round what is normalised and two factors to 2^-11 of their size.
            for (fused, plain) in fused.iter().zip(&plain) {
                let bound = plain.abs() * 4.0 / 2048.0 + if normed { 4e-3 } else { 1e-4 };
                assert!((fused - plain).abs() <= bound, "{fused} is not {plain}");
            }
        }
    }
}
