//! A product of one token that is added to something else before it is rounded.

use half::f16;
use smallvec::smallvec;

use super::Fused;
use super::graph::Graph;
use super::product::{PARAMS, Product, products};
use crate::kernels::convert::convert;
use crate::mil::Opset;
use crate::mil::op::domain::FLOAT;
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::runtime::cpu::plan::Operand;

/// The kind of the step.
pub(in crate::runtime::cpu) const KIND: &str = "product and sum (fused)";

static RESIDUAL: OpDef = OpDef {
    name: KIND,
    since: Opset::Ios15,
    params: &{
        let [x, weight, bias, norm, axes, floor, root, tiny] = PARAMS;
        [x, weight, bias, norm, axes, floor, root, tiny, Param::value("addend", FLOAT)]
    },
    // A fused step takes the place of one whose type is known.
    infer: |_| Err(OpError::new("is made by plans alone")),
    eval: Eval::Kernel(eval),
};

/// Looks for the sum that ends the pattern.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<Fused> {
    if !graph.is(out, "add") {
        return None;
    }
    let (x, y) = (graph.argument(out, "x")?, graph.argument(out, "y")?);
    let (conv, addend) = [(x, y), (y, x)]
        .into_iter()
        .find_map(|(product, addend)| Some((graph.made_for(1, product, "conv")?, addend)))?;
    let product = Product::of(graph, conv)?;
    let shape = graph.half_shape(Operand::Value(graph.steps[out].outputs[0]))?;
    let fits = graph.half_shape(addend)? == shape && !graph.changes_memory(conv..out);
    let (mut arguments, norm) = Product::arguments(graph, &[product]).filter(|_| fits)?;
    arguments.push(smallvec![addend]);
    let steps = [conv, out].into_iter().chain(norm).collect();
    Some(Fused::new(&RESIDUAL, graph, out, arguments, steps))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (out, scratch) = outputs.with_scratch(0)?;
    let out = out.slice::<f16>()?;
    let (sums, addend) = products(call, scratch, out.len())?;
    convert(call.tensor("addend")?.slice::<f16>()?, addend);
    sums.iter_mut().zip(addend).for_each(|(sum, addend)| *sum += *addend);
    convert(sums, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counted_with, halves};
    use super::*;
    use crate::mil::{Builder, Function, TensorType};
    use crate::tensor::DType;

    fn residual(shown: bool, swapped: bool) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &[1, 64, 1, 1]));
        let y = f.input("y", TensorType::fixed(DType::F16, &[1, 40, 1, 1]));
        let weight = halves(&[40, 64, 1, 1], |i| (i * 5 % 17) as f32 / 17.0 - 0.5);
        let conv = f.op("conv").arg("x", x).arg("weight", &weight).push().unwrap();
        let (a, b) = if swapped { (y, conv) } else { (conv, y) };
        let out = f.op("add").arg("x", a).arg("y", b).push().unwrap();
        let outputs = [out, conv];
        f.finish(&outputs[..if shown { 2 } else { 1 }])
    }

    #[test]
    fn one_step_gives_what_the_steps_give() {
        let x = halves(&[1, 64, 1, 1], |i| (i * 11 % 23) as f32 / 23.0 - 0.4);
        let y = halves(&[1, 40, 1, 1], |i| i as f32 / 7.0);
        let inputs = [("x", &x), ("y", &y)];
        for swapped in [false, true] {
            let (fused, steps) = counted_with(residual(false, swapped), &inputs);
            assert_eq!(steps, [(KIND.to_owned(), 2 * 40 * 64)]);
            let (plain, steps) = counted_with(residual(true, swapped), &inputs);
            assert_eq!(steps.len(), 2, "the product leaves the function");
            for (fused, plain) in fused.iter().zip(&plain) {
                assert!((fused - plain).abs() <= 6.0 / 1024.0, "{fused} is not {plain}");
            }
        }
    }
}
