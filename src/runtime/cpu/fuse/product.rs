//! Products of one token with weights, which several patterns are made of: 1x1 convolutions of one position.

use half::f16;
use smallvec::SmallVec;

use super::graph::Graph;
use super::rms_norm;
use crate::cpu::plan::Operand;
use anemeter_kernels::convert::convert;
use anemeter_kernels::rms_norm::rms_norm;
use anemeter_kernels::weight_gemv::{self, RowRange};
use anemeter_mil::op::domain::FLOAT;
use anemeter_mil::op::{Call, OpError, Param, Scratch, Weight};

/// What every step that is made of products takes: the token, a weight for each product, for each a bias or none, and what
/// the token is normalised with before.
pub(super) const PARAMS: [Param; 8] = [
    Param::value("x", FLOAT),
    Param::value("weight", FLOAT).many().packed(),
    Param::value("bias", FLOAT).many().optional().packed(),
    Param::value("norm", FLOAT).optional(),
    rms_norm::PARAMS[0],
    rms_norm::PARAMS[1],
    rms_norm::PARAMS[2],
    rms_norm::PARAMS[3],
];

/// What a step takes for each parameter.
pub(super) type Arguments = Vec<SmallVec<[Operand; 1]>>;

/// A product that weights are read for as they are stored.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) x: Operand,
    pub(super) weight: Operand,
    pub(super) bias: Option<Operand>,
}

impl Product {
    /// The product that a step computes, if it is one of a single token.
    pub(super) fn of(graph: &Graph<'_>, step: usize) -> Option<Product> {
        if !graph.is(step, "conv") {
            return None;
        }
        let (x, weight) = (graph.argument(step, "x")?, graph.argument(step, "weight")?);
        let &[1, columns, 1, 1] = &graph.half_shape(x)?[..] else { return None };
        let &[rows, depth, 1, 1] = &graph.half_shape(weight)?[..] else { return None };
        let out = graph.half_shape(Operand::Value(graph.steps[step].outputs[0]))?;
        let unpadded = match graph.argument(step, "pad") {
            Some(pad) => graph.numbers(pad)?.iter().all(|&pad| pad == 0.0),
            None => true,
        };
        let fits = depth == columns && out[..] == [1, rows, 1, 1] && unpadded;
        let stored = fits && graph.weight(weight)?.rows(columns).is_some();
        stored.then(|| Product { x, weight, bias: graph.argument(step, "bias") })
    }

    /// The arguments of a step that computes some products of one token, and the steps it stands for beside them: a norm
    /// whose result nobody else takes. All must have a bias, or none.
    pub(super) fn arguments(graph: &Graph<'_>, products: &[Product]) -> Option<(Arguments, Option<usize>)> {
        let biases: SmallVec<[Operand; 1]> = products.iter().filter_map(|product| product.bias).collect();
        if !biases.is_empty() && biases.len() != products.len() {
            return None;
        }
        let x = products.first()?.x;
        let norm = graph.made_for(products.len(), x, rms_norm::KIND);
        let mut arguments =
            vec![SmallVec::from_elem(x, 1), products.iter().map(|product| product.weight).collect(), biases];
        match norm {
            Some(norm) => {
                arguments[0] = SmallVec::from_elem(graph.argument(norm, "x")?, 1);
                arguments.extend_from_slice(&graph.steps[norm].arguments[1..]);
            }
            None => arguments.resize(PARAMS.len(), SmallVec::new()),
        }
        Some((arguments, norm))
    }
}

/// The products of a call one after the other, in f32, and more memory of the same kind.
pub(super) fn products<'s>(
    call: &Call<'_>,
    scratch: &'s mut Scratch,
    more: usize,
) -> Result<(&'s mut [f32], &'s mut [f32]), OpError> {
    let x = call.tensor("x")?;
    let weights: SmallVec<[Weight<'_>; 4]> =
        (0..call.count("weight")).map(|i| call.weight_at("weight", i)).collect::<Result<_, _>>()?;
    let mut parts: SmallVec<[RowRange<'_>; 4]> = SmallVec::new();
    for weight in &weights {
        let matrix = weight.rows(x.len()).ok_or_else(|| OpError::new("a weight is not stored by rows"))?;
        parts.push(RowRange { matrix, first: 0, count: weight.shape()[0] });
    }
    let total = parts.iter().map(|part| part.count).sum();
    let biased = if call.has("bias") { total } else { 0 };
    let [wide, work, bias, sums, more] =
        scratch.floats([x.len(), weight_gemv::scratch_len(x.len()), biased, total, more]);
    match call.opt_tensor("norm")? {
        Some(weight) => {
            rms_norm(x.slice::<f16>()?, weight.slice::<f16>()?, 1, rms_norm::epsilon(call)?, wide);
        }
        None => convert(x.slice::<f16>()?, wide),
    }
    weight_gemv::gemv(wide, &parts, work, sums);
    let mut start = 0;
    for (i, part) in parts.iter().enumerate().take(call.count("bias")) {
        call.weight_at("bias", i)?.read(0..part.count, &mut bias[start..][..part.count]);
        start += part.count;
    }
    sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += *bias);
    Ok((sums, more))
}
