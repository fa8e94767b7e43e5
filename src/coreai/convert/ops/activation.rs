//! Activations.

use super::Emitter;
use super::elementwise::{clamped, greater, map};
use crate::convert::body::{Body, tensor};
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Attribute, ValueId};

pub(super) const OPS: &[(&str, Emitter)] = &[
    ("clamped_relu", clamped_relu),
    ("elu", elu),
    ("gelu", gelu),
    ("leaky_relu", |e| {
        let alpha = number(e, "alpha")?;
        map(e, |body, x| leaky(body, x, alpha))
    }),
    ("linear_activation", |e| affine(e, |_, y| y)),
    ("relu", |e| map(e, Body::relu)),
    ("relu6", |e| map(e, |body, x| clamped(body, x, 0.0, 6.0))),
    ("scaled_tanh", scaled_tanh),
    ("sigmoid", |e| map(e, Body::sigmoid)),
    ("sigmoid_hard", |e| affine(e, |body, y| clamped(body, y, 0.0, 1.0))),
    ("silu", |e| map(e, Body::silu)),
    ("softplus", |e| map(e, softplus)),
    ("softsign", |e| map(e, softsign)),
    ("thresholded_relu", thresholded_relu),
];

fn number(e: &Emit<'_, '_, '_>, parameter: &str) -> Result<f64> {
    Ok(f64::from(e.call.float(parameter)?))
}

fn leaky(body: &mut Body, x: ValueId, alpha: f64) -> ValueId {
    let (above, below) = halves(body, x);
    let below = body.with_number("primitive.mul_v1", below, alpha);
    body.binary("primitive.add_v1", above, below)
}

/// What of a tensor is above and what is below zero.
fn halves(body: &mut Body, x: ValueId) -> (ValueId, ValueId) {
    let above = body.with_number("primitive.maximum_v1", x, 0.0);
    (above, body.with_number("primitive.minimum_v1", x, 0.0))
}

fn clamped_relu(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (alpha, beta) = (number(e, "alpha")?, number(e, "beta")?);
    map(e, |body, x| {
        let leaky = leaky(body, x, alpha);
        body.with_number("primitive.minimum_v1", leaky, beta)
    })
}

fn elu(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let alpha = number(e, "alpha")?;
    map(e, |body, x| {
        let (above, below) = halves(body, x);
        let power = body.unary("primitive.exp_v1", below);
        let power = body.with_number("primitive.sub_v1", power, 1.0);
        let below = body.with_number("primitive.mul_v1", power, alpha);
        body.binary("primitive.add_v1", above, below)
    })
}

/// A function of `alpha * x + beta`.
fn affine(e: &mut Emit<'_, '_, '_>, f: impl FnOnce(&mut Body, ValueId) -> ValueId) -> Result<Vec<ValueId>> {
    let (alpha, beta) = (number(e, "alpha")?, number(e, "beta")?);
    map(e, |body, x| {
        let product = body.with_number("primitive.mul_v1", x, alpha);
        let sum = body.with_number("primitive.add_v1", product, beta);
        f(body, sum)
    })
}

fn scaled_tanh(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (alpha, beta) = (number(e, "alpha")?, number(e, "beta")?);
    map(e, |body, x| {
        let product = body.with_number("primitive.mul_v1", x, beta);
        let bent = body.unary("primitive.tanh_v1", product);
        body.with_number("primitive.mul_v1", bent, alpha)
    })
}

/// `max(x, 0) + ln(1 + e^-|x|)`, which does not overflow.
fn softplus(body: &mut Body, x: ValueId) -> ValueId {
    let size = body.unary("primitive.abs_v1", x);
    let negative = body.negative(size);
    let power = body.unary("primitive.exp_v1", negative);
    let sum = body.with_number("primitive.add_v1", power, 1.0);
    let logarithm = body.unary("primitive.log_v1", sum);
    let above = body.with_number("primitive.maximum_v1", x, 0.0);
    body.binary("primitive.add_v1", above, logarithm)
}

fn softsign(body: &mut Body, x: ValueId) -> ValueId {
    let size = body.unary("primitive.abs_v1", x);
    let sum = body.with_number("primitive.add_v1", size, 1.0);
    body.binary("primitive.divide_v1", x, sum)
}

fn thresholded_relu(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let alpha = number(e, "alpha")?;
    map(e, |body, x| {
        let (element, dims) = (body.element(x), body.dims(x));
        let (least, zero) = (body.splat(element, &dims, alpha), body.splat(element, &dims, 0.0));
        let is_below = greater(body, least, x);
        body.push("primitive.where_v1", &[is_below, zero, x], tensor(element, &dims))
    })
}

fn gelu(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    match e.call.text("mode")? {
        "EXACT" => map(e, |body, x| gelu_by(body, x, Attribute::Approximate(0))),
        "TANH_APPROXIMATION" => map(e, |body, x| gelu_by(body, x, Attribute::Approximate(1))),
        "SIGMOID_APPROXIMATION" => map(e, |body, x| {
            let steep = body.with_number("primitive.mul_v1", x, 1.702);
            let gate = body.sigmoid(steep);
            body.binary("primitive.mul_v1", x, gate)
        }),
        other => refuse!("`mode` is \"{other}\""),
    }
}

/// The primitive, by erf or by tanh.
fn gelu_by(body: &mut Body, x: ValueId, how: Attribute) -> ValueId {
    let ty = body.ty(x).clone();
    body.push_op("primitive.gelu_v1", &[x], vec![ty], vec![Some(how)], Vec::new())[0]
}
