//! The first half of a gated MLP for one token: gate and value, `gate sigmoid(gate)` times value.

use half::f16;

use super::Fused;
use super::gated;
use super::graph::Graph;
use super::product::{PARAMS, Product, products};
use crate::kernels::convert::convert;
use crate::kernels::elementwise::gated_silu;
use crate::mil::Opset;
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs};

/// The kind of the step.
pub(in crate::runtime::cpu) const KIND: &str = "gated products (fused)";

static GATED_PRODUCTS: OpDef = OpDef {
    name: KIND,
    since: Opset::Ios15,
    params: &PARAMS,
    // A fused step takes the place of one whose type is known.
    infer: |_| Err(OpError::new("is made by plans alone")),
    eval: Eval::Kernel(eval),
};

/// Looks for the gated product that ends the pattern.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<Fused> {
    if !graph.is(out, gated::KIND) {
        return None;
    }
    let gate = graph.made_for(1, graph.argument(out, "x")?, "conv")?;
    let value = graph.made_for(1, graph.argument(out, "y")?, "conv")?;
    let pair = [Product::of(graph, gate)?, Product::of(graph, value)?];
    let fits = Graph::same(pair[0].x, pair[1].x) && !graph.changes_memory(gate.min(value)..out);
    let (arguments, norm) = Product::arguments(graph, &pair).filter(|_| fits)?;
    let steps = [gate, value, out].into_iter().chain(norm).collect();
    Some(Fused::new(&GATED_PRODUCTS, graph, out, arguments, steps))
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
    use super::super::testing::{counted_with, halves, push_norm};
    use super::*;
    use crate::mil::{Builder, Function, TensorType};
    use crate::tensor::DType;

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
    fn one_step_gives_what_the_steps_give() {
        let x = halves(&[1, 64, 1, 1], |i| (i * 11 % 23) as f32 / 23.0 - 0.4);
        for normed in [false, true] {
            let (fused, steps) = counted_with(mlp(false, normed), &[("x", &x)]);
            assert_eq!(steps, [(KIND.to_owned(), 2 * 2 * 40 * 64)]);
            let (plain, steps) = counted_with(mlp(true, normed), &[("x", &x)]);
            assert!(steps.iter().all(|(kind, _)| kind != KIND), "the value leaves the function");
            // The steps round what is normalised and two factors to 2^-11 of their size.
            for (fused, plain) in fused.iter().zip(&plain) {
                let bound = plain.abs() * 4.0 / 2048.0 + if normed { 4e-3 } else { 1e-4 };
                assert!((fused - plain).abs() <= bound, "{fused} is not {plain}");
            }
        }
    }
}
