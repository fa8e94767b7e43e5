//! Elementwise arithmetic, comparison, logic and functions.

use super::Emitter;
use crate::convert::body::{Body, tensor};
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Scalar, ValueId};

pub(super) const OPS: &[(&str, Emitter)] = &[
    ("abs", |e| unary(e, "primitive.abs_v1")),
    ("acos", |e| unary(e, "primitive.acos_v1")),
    ("add", |e| binary(e, "primitive.add_v1")),
    ("asin", |e| unary(e, "primitive.asin_v1")),
    ("atan", |e| unary(e, "primitive.atan_v1")),
    ("atanh", |e| unary(e, "primitive.atanh_v1")),
    ("ceil", |e| map(e, ceil)),
    ("clip", clip),
    ("cos", |e| unary(e, "primitive.cos_v1")),
    ("cosh", |e| unary(e, "primitive.cosh_v1")),
    ("equal", |e| compare(e, |body, x, y| body.binary_to("primitive.equal_v1", x, y, Scalar::Bool))),
    ("erf", |e| unary(e, "primitive.erf_v1")),
    ("exp", |e| unary(e, "primitive.exp_v1")),
    ("exp2", |e| map(e, exp2)),
    ("floor", |e| map(e, floor)),
    ("floor_div", |e| binary(e, "primitive.floor_divide_v1")),
    ("greater", |e| compare(e, greater)),
    ("greater_equal", |e| compare(e, greater_equal)),
    ("identity", |e| Ok(vec![e.arg("x")?])),
    ("inverse", |e| shifted(e, Body::inverse)),
    ("less", |e| compare(e, |body, x, y| greater(body, y, x))),
    ("less_equal", |e| compare(e, |body, x, y| greater_equal(body, y, x))),
    ("log", |e| shifted(e, |body, x| body.unary("primitive.log_v1", x))),
    ("logical_and", |e| binary(e, "primitive.logical_and_v1")),
    ("logical_not", |e| unary(e, "primitive.not_v1")),
    ("logical_or", |e| binary(e, "primitive.logical_or_v1")),
    ("logical_xor", |e| binary(e, "primitive.logical_xor_v1")),
    ("maximum", |e| binary(e, "primitive.maximum_v1")),
    ("minimum", |e| binary(e, "primitive.minimum_v1")),
    ("mod", modulo),
    ("mul", |e| binary(e, "primitive.mul_v1")),
    ("not_equal", |e| compare(e, |body, x, y| body.binary_to("primitive.not_equal_v1", x, y, Scalar::Bool))),
    ("pow", |e| binary(e, "primitive.pow_v1")),
    ("real_div", real_div),
    ("round", |e| unary(e, "primitive.round_v1")),
    ("rsqrt", |e| shifted(e, |body, x| body.unary("primitive.rsqrt_v1", x))),
    ("sign", |e| map(e, sign)),
    ("sin", |e| unary(e, "primitive.sin_v1")),
    ("sinh", |e| unary(e, "primitive.sinh_v1")),
    ("sqrt", |e| unary(e, "primitive.sqrt_v1")),
    ("square", |e| map(e, |body, x| body.binary("primitive.mul_v1", x, x))),
    ("sub", |e| binary(e, "primitive.sub_v1")),
    ("tan", |e| unary(e, "primitive.tan_v1")),
    ("tanh", |e| unary(e, "primitive.tanh_v1")),
    ("threshold", |e| {
        let alpha = f64::from(e.call.float("alpha")?);
        map(e, |body, x| body.with_number("primitive.maximum_v1", x, alpha))
    }),
];

/// Applies a function to `x`.
pub(super) fn map(
    e: &mut Emit<'_, '_, '_>,
    f: impl FnOnce(&mut Body, ValueId) -> ValueId,
) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    Ok(vec![f(e.body(), x)])
}

fn unary(e: &mut Emit<'_, '_, '_>, name: &'static str) -> Result<Vec<ValueId>> {
    map(e, |body, x| body.unary(name, x))
}

fn binary(e: &mut Emit<'_, '_, '_>, name: &'static str) -> Result<Vec<ValueId>> {
    let (x, y) = operands(e)?;
    Ok(vec![e.body().binary(name, x, y)])
}

/// Operands in one type: MIL lets constants of another float type stand beside a tensor.
fn operands(e: &mut Emit<'_, '_, '_>) -> Result<(ValueId, ValueId)> {
    let (x, y) = (e.arg("x")?, e.arg("y")?);
    let to = e.body().element(x);
    Ok((x, e.body().cast(y, to)))
}

fn real_div(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    if !e.call.ty("x")?.dtype.is_float() {
        refuse!("divides integers as real numbers, which aicode does not");
    }
    binary(e, "primitive.divide_v1")
}

/// `x - floor(x / y) * y`. aicode's own modulo takes the sign of `x`, MIL's that of `y`.
fn modulo(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (x, y) = operands(e)?;
    let body = e.body();
    let whole = body.binary("primitive.floor_divide_v1", x, y);
    let product = body.binary("primitive.mul_v1", whole, y);
    Ok(vec![body.binary("primitive.sub_v1", x, product)])
}

fn compare(
    e: &mut Emit<'_, '_, '_>,
    f: impl FnOnce(&mut Body, ValueId, ValueId) -> ValueId,
) -> Result<Vec<ValueId>> {
    let (x, y) = operands(e)?;
    Ok(vec![f(e.body(), x, y)])
}

/// `x > y`.
pub(super) fn greater(body: &mut Body, x: ValueId, y: ValueId) -> ValueId {
    body.binary_to("primitive.greater_v1", x, y, Scalar::Bool)
}

fn greater_equal(body: &mut Body, x: ValueId, y: ValueId) -> ValueId {
    let more = greater(body, x, y);
    let same = body.binary_to("primitive.equal_v1", x, y, Scalar::Bool);
    body.binary("primitive.logical_or_v1", more, same)
}

/// A function of `x` plus the parameter `epsilon`.
fn shifted(e: &mut Emit<'_, '_, '_>, f: impl FnOnce(&mut Body, ValueId) -> ValueId) -> Result<Vec<ValueId>> {
    let epsilon = f64::from(e.call.float("epsilon")?);
    map(e, |body, x| {
        let x = body.with_number("primitive.add_v1", x, epsilon);
        f(body, x)
    })
}

/// `x` between two numbers.
pub(super) fn clamped(body: &mut Body, x: ValueId, low: f64, high: f64) -> ValueId {
    let x = body.with_number("primitive.maximum_v1", x, low);
    body.with_number("primitive.minimum_v1", x, high)
}

fn clip(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (low, high) = (f64::from(e.call.float("alpha")?), f64::from(e.call.float("beta")?));
    map(e, |body, x| clamped(body, x, low, high))
}

fn floor(body: &mut Body, x: ValueId) -> ValueId {
    body.with_number("primitive.floor_divide_v1", x, 1.0)
}

fn ceil(body: &mut Body, x: ValueId) -> ValueId {
    let negative = body.negative(x);
    let floor = floor(body, negative);
    body.negative(floor)
}

fn exp2(body: &mut Body, x: ValueId) -> ValueId {
    let (element, dims) = (body.element(x), body.dims(x));
    let two = body.splat(element, &dims, 2.0);
    body.push("primitive.pow_v1", &[two, x], tensor(element, &dims))
}

fn sign(body: &mut Body, x: ValueId) -> ValueId {
    let (element, dims) = (body.element(x), body.dims(x));
    let zero = body.splat(element, &dims, 0.0);
    let (above, below) = (greater(body, x, zero), greater(body, zero, x));
    let (above, below) = (body.cast(above, element), body.cast(below, element));
    body.binary("primitive.sub_v1", above, below)
}
