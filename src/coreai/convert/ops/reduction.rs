//! Reductions over some or all axes.

use super::Emitter;
use crate::convert::body::Body;
use crate::convert::composites::Combine;
use crate::convert::emit::Emit;
use crate::convert::error::Result;
use crate::program::ValueId;
use anemeter_kernels::tensor::shape;

pub(super) const OPS: &[(&str, Emitter)] = &[
    ("reduce_l1_norm", |e| {
        reduce(e, |body, x, axes| {
            let size = body.unary("primitive.abs_v1", x);
            body.reduce(Combine::Sum, size, axes)
        })
    }),
    ("reduce_l2_norm", |e| {
        reduce(e, |body, x, axes| {
            let sum = sum_of_squares(body, x, axes);
            body.unary("primitive.sqrt_v1", sum)
        })
    }),
    ("reduce_log_sum", |e| {
        reduce(e, |body, x, axes| {
            let sum = body.reduce(Combine::Sum, x, axes);
            body.unary("primitive.log_v1", sum)
        })
    }),
    ("reduce_log_sum_exp", |e| reduce(e, log_sum_exp)),
    ("reduce_max", |e| reduce(e, |body, x, axes| body.reduce(Combine::Max, x, axes))),
    ("reduce_mean", |e| reduce(e, Body::mean)),
    ("reduce_min", |e| reduce(e, |body, x, axes| body.reduce(Combine::Min, x, axes))),
    ("reduce_prod", |e| reduce(e, |body, x, axes| body.reduce(Combine::Product, x, axes))),
    ("reduce_sum", |e| reduce(e, |body, x, axes| body.reduce(Combine::Sum, x, axes))),
    ("reduce_sum_square", |e| reduce(e, sum_of_squares)),
];

/// The parameter `axes`, all where it is left out.
pub(super) fn axes(e: &Emit<'_, '_, '_>, rank: usize) -> Result<Vec<usize>> {
    if !e.call.has("axes") {
        return Ok((0..rank).collect());
    }
    let mut axes: Vec<usize> =
        e.call.ints("axes")?.iter().filter_map(|&axis| shape::axis(axis, rank)).collect();
    axes.sort_unstable();
    Ok(axes)
}

fn reduce(
    e: &mut Emit<'_, '_, '_>,
    f: impl FnOnce(&mut Body, ValueId, &[usize]) -> ValueId,
) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let rank = e.body().dims(x).len();
    let (axes, dims) = (axes(e, rank)?, e.result_dims()?);
    let reduced = f(e.body(), x, &axes);
    Ok(vec![e.body().reshape(reduced, &dims)])
}

/// The sum of the squares over some axes.
pub(super) fn sum_of_squares(body: &mut Body, x: ValueId, axes: &[usize]) -> ValueId {
    let squares = body.binary("primitive.mul_v1", x, x);
    body.reduce(Combine::Sum, squares, axes)
}

fn log_sum_exp(body: &mut Body, x: ValueId, axes: &[usize]) -> ValueId {
    let most = body.reduce(Combine::Max, x, axes);
    let shifted = body.binary("primitive.sub_v1", x, most);
    let powers = body.unary("primitive.exp_v1", shifted);
    let sum = body.reduce(Combine::Sum, powers, axes);
    let logarithm = body.unary("primitive.log_v1", sum);
    body.binary("primitive.add_v1", logarithm, most)
}
