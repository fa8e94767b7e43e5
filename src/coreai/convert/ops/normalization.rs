//! Norms, written as what they compute.

use super::Emitter;
use super::reduction::{axes, sum_of_squares};
use crate::convert::body::Body;
use crate::convert::emit::Emit;
use crate::convert::error::Result;
use crate::program::ValueId;

pub(super) const OPS: &[(&str, Emitter)] = &[
    ("batch_norm", batch_norm),
    ("instance_norm", instance_norm),
    ("l2_norm", l2_norm),
    ("layer_norm", layer_norm),
];

/// `(x - mean) / sqrt(variance + epsilon)` over some axes.
fn standardized(body: &mut Body, x: ValueId, axes: &[usize], epsilon: f64) -> ValueId {
    let mean = body.mean(x, axes);
    let centred = body.binary("primitive.sub_v1", x, mean);
    let squares = body.binary("primitive.mul_v1", centred, centred);
    let variance = body.mean(squares, axes);
    let variance = body.with_number("primitive.add_v1", variance, epsilon);
    let inverse = body.unary("primitive.rsqrt_v1", variance);
    body.binary("primitive.mul_v1", centred, inverse)
}

/// Times `gamma` plus `beta`, where they are given, in the given shape.
fn affine(e: &mut Emit<'_, '_, '_>, mut x: ValueId, dims: &[u64]) -> Result<ValueId> {
    for (parameter, op) in [("gamma", "primitive.mul_v1"), ("beta", "primitive.add_v1")] {
        if let Some(factor) = e.opt_arg(parameter)? {
            let factor = channel_wise(e.body(), x, factor, dims);
            x = e.body().binary(op, x, factor);
        }
    }
    Ok(x)
}

fn channel_wise(body: &mut Body, x: ValueId, value: ValueId, dims: &[u64]) -> ValueId {
    let value = body.cast(value, body.element(x));
    body.reshape(value, dims)
}

fn channels(body: &Body, x: ValueId) -> Vec<u64> {
    let dims = body.dims(x);
    (0..dims.len()).map(|axis| if axis == 1 { dims[1] } else { 1 }).collect()
}

fn layer_norm(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let dims = e.body().dims(x);
    let axes = axes(e, dims.len())?;
    let epsilon = f64::from(e.call.float("epsilon")?);
    let normal = standardized(e.body(), x, &axes, epsilon);
    let shape: Vec<u64> =
        (0..dims.len()).map(|axis| if axes.contains(&axis) { dims[axis] } else { 1 }).collect();
    Ok(vec![affine(e, normal, &shape)?])
}

fn instance_norm(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let axes: Vec<usize> = (2..e.body().dims(x).len()).collect();
    let epsilon = f64::from(e.call.float("epsilon")?);
    let normal = standardized(e.body(), x, &axes, epsilon);
    let shape = channels(e.body(), x);
    Ok(vec![affine(e, normal, &shape)?])
}

fn batch_norm(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (x, mean, variance) = (e.arg("x")?, e.arg("mean")?, e.arg("variance")?);
    let epsilon = f64::from(e.call.float("epsilon")?);
    let body = e.body();
    let shape = channels(body, x);
    let mean = channel_wise(body, x, mean, &shape);
    let variance = channel_wise(body, x, variance, &shape);
    let variance = body.with_number("primitive.add_v1", variance, epsilon);
    let inverse = body.unary("primitive.rsqrt_v1", variance);
    let centred = body.binary("primitive.sub_v1", x, mean);
    let normal = body.binary("primitive.mul_v1", centred, inverse);
    Ok(vec![affine(e, normal, &shape)?])
}

/// `x` over its length along the last three axes.
fn l2_norm(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let epsilon = f64::from(e.call.float("epsilon")?);
    let body = e.body();
    let rank = body.dims(x).len();
    let axes: Vec<usize> = (rank.saturating_sub(3)..rank).collect();
    let sum = sum_of_squares(body, x, &axes);
    let sum = body.with_number("primitive.add_v1", sum, epsilon);
    let inverse = body.unary("primitive.rsqrt_v1", sum);
    Ok(vec![body.binary("primitive.mul_v1", x, inverse)])
}
