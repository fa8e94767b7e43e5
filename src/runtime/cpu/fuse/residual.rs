//! The residual connection: a product of one token, its addend added before the sum is rounded (a GEMV epilogue).

use half::f16;
use smallvec::smallvec;

use super::graph::Graph;
use super::product::{PARAMS, Product, products};
use super::{FusedStep, PRODUCT, fused_op};
use crate::cpu::plan::Operand;
use anemeter_kernels::convert::convert;
use anemeter_mil::op::domain::FLOAT;
use anemeter_mil::op::{Call, OpDef, OpError, Outputs, Param};

const KIND: &str = "product and sum (fused)";

static RESIDUAL: OpDef = fused_op(KIND, PRODUCT, &WITH_ADDEND, eval);

const WITH_ADDEND: [Param; 9] = {
    let [x, weight, bias, norm, axes, floor, root, tiny] = PARAMS;
    [x, weight, bias, norm, axes, floor, root, tiny, Param::value("addend", FLOAT)]
};

/// Looks for the sum that ends the pattern.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<FusedStep> {
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
    Some(FusedStep::new(&RESIDUAL, graph, out, arguments, steps))
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
    use super::super::testing::{counted_with, halves, sum};
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Function, Opset, TensorType};

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
    fn product_and_sum_in_one_step_give_what_the_steps_give() {
        let x = halves(&[1, 64, 1, 1], |i| (i * 11 % 23) as f32 / 23.0 - 0.4);
        let y = halves(&[1, 40, 1, 1], |i| i as f32 / 7.0);
        let inputs = [("x", &x), ("y", &y)];
        for swapped in [false, true] {
            let (fused, steps) = counted_with(residual(false, swapped), &inputs);
            assert_eq!(steps, [(KIND.to_owned(), 2 * 40 * 64 + 40)]);
            let (plain, steps) = counted_with(residual(true, swapped), &inputs);
            assert_eq!(steps.len(), 2, "the product leaves the function");
            assert_eq!(sum(&steps), 2 * 40 * 64 + 40);
            for (fused, plain) in fused.iter().zip(&plain) {
                assert!((fused - plain).abs() <= 6.0 / 1024.0, "{fused} is not {plain}");
            }
        }
    }
}
