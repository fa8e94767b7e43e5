//! Products of one token that share their input, such as query, key and value (QKV fusion): one GEMV over the rows of
//! all their weights, with the RMS norm before them. A single product joins the norm before it.

use half::f16;
use smallvec::SmallVec;

use super::graph::Graph;
use super::product::{PARAMS, Product, products};
use super::{FusedStep, PRODUCT, fused_op};
use anemeter_kernels::convert::convert;
use anemeter_mil::op::{Call, OpDef, OpError, Outputs};

const KIND: &str = "products (fused)";

static SHARED_INPUT: OpDef = fused_op(KIND, PRODUCT, &PARAMS, eval);

/// Looks for all products of the token that the last of them takes.
pub(super) fn find(graph: &Graph<'_>, last: usize) -> Option<FusedStep> {
    let own = Product::of(graph, last)?;
    let of_token = |&step: &usize| {
        let product = Product::of(graph, step).filter(|product| Graph::same(product.x, own.x))?;
        Some((step, product))
    };
    let (mut steps, found): (Vec<usize>, Vec<Product>) =
        graph.users(own.x).iter().filter_map(of_token).unzip();
    let (&first, &end) = steps.first().zip(steps.last())?;
    if end != last || graph.changes_memory(first..last) {
        return None;
    }
    let outputs: SmallVec<[usize; 4]> = steps.iter().map(|&step| graph.steps[step].outputs[0]).collect();
    let (arguments, norm) = Product::arguments(graph, &found)?;
    // A head is to give the same whether it is one product or several.
    if steps.len() == 1 && norm.is_none() {
        return None;
    }
    steps.extend(norm);
    let mut fused = FusedStep::new(&SHARED_INPUT, graph, first, arguments, steps);
    fused.step.outputs = outputs;
    // Whoever takes the first result may come before the last product, and all of them take what is there already.
    fused.place = first;
    Some(fused)
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (outputs, scratch) = outputs.all_with_scratch();
    let (mut sums, _) = products(call, scratch, 0)?;
    for out in outputs {
        let out = out?.slice::<f16>()?;
        let (own, rest) = sums.split_at_mut(out.len());
        convert(own, out);
        sums = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counted_with, halves, sum};
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Function, Opset, TensorType};

    /// Two or three products of `x`; what comes of the first is used before the second is computed.
    fn function(biased: [bool; 2], tokens: usize) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &[1, 64, 1, tokens]));
        let bias = halves(&[24], |i| i as f32 / 8.0 - 1.0);
        let [a, b] = [3, 5].map(|seed| halves(&[24, 64, 1, 1], |i| (i * seed % 13) as f32 / 13.0 - 0.5));
        let mut products = [x; 2];
        for ((product, weight), biased) in products.iter_mut().zip([&a, &b]).zip(biased) {
            let conv = f.op("conv").arg("x", x).arg("weight", weight);
            let conv = if biased { conv.arg("bias", &bias) } else { conv };
            let out = conv.push().unwrap();
            *product = f.op("relu").arg("x", out).push().unwrap();
        }
        let out = f.op("sub").arg("x", products[0]).arg("y", products[1]).push().unwrap();
        f.finish(&[out])
    }

    fn run(biased: [bool; 2], tokens: usize) -> (Vec<f32>, Vec<(String, usize)>) {
        let x = halves(&[1, 64, 1, tokens], |i| (i / tokens * 11 % 23) as f32 / 23.0 - 0.4);
        counted_with(function(biased, tokens), &[("x", &x)])
    }

    #[test]
    fn products_of_one_input_in_one_step_give_what_the_steps_give() {
        for biased in [[false; 2], [true; 2]] {
            let (found, steps) = run(biased, 1);
            let kinds: Vec<&str> = steps.iter().map(|(kind, _)| kind.as_str()).collect();
            assert_eq!(kinds, [KIND, "relu", "relu", "sub"]);
            let (several, of_three) = run(biased, 3);
            assert!(of_three.iter().all(|(kind, _)| kind != KIND));
            assert_eq!(3 * sum(&steps), sum(&of_three));
            for (found, several) in found.iter().zip(several.chunks(3)) {
                assert!((found - several[0]).abs() <= 4e-3, "{found} is not {}", several[0]);
            }
        }
    }

    #[test]
    fn a_bias_for_some_is_left_alone() {
        assert!(run([true, false], 1).1.iter().all(|(kind, _)| kind != KIND));
    }
}
