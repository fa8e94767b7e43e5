//! Convolutions over one and two spatial axes.

use super::Emitter;
use crate::convert::body::Body;
use crate::convert::body::tensor;
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Scalar, ValueId};

pub(super) const OPS: &[(&str, Emitter)] = &[("conv", conv)];

/// How a window moves along one axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub(super) stride: u64,
    pub(super) dilation: u64,
    /// Margins.
    pub(super) before: u64,
    pub(super) after: u64,
}

fn conv(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (x, weight, bias) = (e.arg("x")?, e.arg("weight")?, e.opt_arg("bias")?);
    let (groups, dims) = (e.call.int("groups")?, e.result_dims()?);
    let (from, kernel) = (e.body().dims(x), e.body().dims(weight));
    if !(3..=4).contains(&from.len()) {
        refuse!("convolves over {} axes; one and two have an aicode form here", from.len().saturating_sub(2));
    }
    let axes = axes(e, &from[2..], &kernel[2..], &dims[2..])?;
    let body = e.body();
    let element = body.element(x);
    let weight = body.cast(weight, element);
    let mut margins = vec![(0, 0); 2];
    margins.extend(axes.iter().map(|axis| (axis.before, axis.after)));
    let x = body.pad(x, &margins, 0.0);
    let (x, weight, axes) = match axes[..] {
        [along] => {
            let one = Axis { stride: 1, dilation: 1, before: 0, after: 0 };
            (tall(body, x), tall(body, weight), vec![one, along])
        }
        _ => (x, weight, axes),
    };
    let mut out_dims = dims.clone();
    if out_dims.len() == 3 {
        out_dims.insert(2, 1);
    }
    let strides: Vec<u64> = axes.iter().map(|axis| axis.stride).collect();
    let dilations: Vec<u64> = axes.iter().map(|axis| axis.dilation).collect();
    let operands = [
        x,
        weight,
        body.sizes(&strides),
        body.sizes(&dilations),
        body.splat(Scalar::U32, &[], groups as f64),
    ];
    let mut out = body.push("primitive.conv2d_v1", &operands, tensor(element, &out_dims));
    if let Some(bias) = bias {
        let channels = body.dims(bias).iter().product();
        let bias = body.cast(bias, element);
        let bias = body.reshape(bias, &[1, channels, 1, 1]);
        out = body.binary("primitive.add_v1", out, bias);
    }
    Ok(vec![body.reshape(out, &dims)])
}

/// A sequence as an image of height one.
pub(super) fn tall(body: &mut Body, x: ValueId) -> ValueId {
    let mut dims = body.dims(x);
    dims.insert(2, 1);
    body.reshape(x, &dims)
}

/// Strides, dilations and margins, as `pad_type` and the sizes of input and output say.
pub(super) fn axes(e: &Emit<'_, '_, '_>, from: &[u64], kernel: &[u64], to: &[u64]) -> Result<Vec<Axis>> {
    let list = |name: &str| -> Result<Vec<u64>> {
        match e.call.has(name) {
            true => Ok(e.call.ints(name)?.iter().map(|&value| value.unsigned_abs()).collect()),
            false => Ok(vec![1; from.len()]),
        }
    };
    // Windows of a pooling have no dilations.
    let is_conv = e.op.kind() == "conv";
    let strides = list("strides")?;
    let dilations = if is_conv { list("dilations")? } else { vec![1; from.len()] };
    let pad_type = e.call.text("pad_type")?;
    let margin = |axis: usize| -> Result<(u64, u64)> {
        let reach = (to[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1;
        let total = reach.saturating_sub(from[axis]);
        Ok(match pad_type {
            "valid" => (0, 0),
            "same" => (total / 2, total - total / 2),
            "same_lower" => (total - total / 2, total / 2),
            "custom" => {
                let pad = e.call.ints("pad")?;
                (pad[2 * axis].unsigned_abs(), pad[2 * axis + 1].unsigned_abs())
            }
            other => refuse!("`pad_type` is \"{other}\""),
        })
    };
    let axis = |axis: usize| {
        let (before, after) = margin(axis)?;
        Ok(Axis { stride: strides[axis], dilation: dilations[axis], before, after })
    };
    (0..from.len()).map(axis).collect()
}
