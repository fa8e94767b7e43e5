//! Pooling over one and two spatial axes.

use super::Emitter;
use super::convolution::{Axis, axes, tall};
use crate::convert::body::{Body, extremes, tensor};
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Scalar, ValueId};

pub(super) const OPS: &[(&str, Emitter)] = &[("avg_pool", average), ("max_pool", largest)];

/// A tensor of rank 4 with its margins, and how windows move over it.
struct Windows {
    x: ValueId,
    kernel: Vec<u64>,
    strides: Vec<u64>,
    /// Sizes before margins, of the windows' axes.
    inner: Vec<(u64, Axis)>,
    dims: Vec<u64>,
}

/// Reads the windows of a call, with margins of a number.
fn windows(e: &mut Emit<'_, '_, '_>, margin: impl FnOnce(Scalar) -> f64) -> Result<Windows> {
    let (x, dims) = (e.arg("x")?, e.result_dims()?);
    if e.call.bool("ceil_mode")? {
        refuse!("`ceil_mode` is set; only whole windows have an aicode form here");
    }
    let from = e.body().dims(x);
    if !(3..=4).contains(&from.len()) {
        refuse!("pools over {} axes; one and two have an aicode form here", from.len().saturating_sub(2));
    }
    let kernel: Vec<u64> = e.call.ints("kernel_sizes")?.iter().map(|&size| size.unsigned_abs()).collect();
    let axes = axes(e, &from[2..], &kernel, &dims[2..])?;
    let body = e.body();
    let mut margins = vec![(0, 0); 2];
    margins.extend(axes.iter().map(|axis| (axis.before, axis.after)));
    let value = margin(body.element(x));
    let mut x = body.pad(x, &margins, value);
    let inner = from[2..].iter().copied().zip(axes.iter().copied()).collect();
    let (mut kernel, mut strides) = (kernel, axes.iter().map(|axis| axis.stride).collect::<Vec<_>>());
    let mut out = dims;
    if from.len() == 3 {
        x = tall(body, x);
        kernel.insert(0, 1);
        strides.insert(0, 1);
        out.insert(2, 1);
    }
    Ok(Windows { x, kernel, strides, inner, dims: out })
}

fn largest(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let windows = windows(e, |element| extremes(element).0)?;
    let dims = e.result_dims()?;
    let body = e.body();
    let no = body.splat(Scalar::Bool, &[], 0.0);
    let operands =
        [windows.x, body.sizes(&windows.kernel), body.sizes(&windows.strides), body.sizes(&[1, 1]), no];
    let ty = tensor(body.element(windows.x), &windows.dims);
    let pooled = body.push("primitive.max_pool_2d_v1", &operands, ty);
    Ok(vec![body.reshape(pooled, &dims)])
}

fn average(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let excludes = e.call.bool("exclude_padding_from_average")?;
    let windows = windows(e, |_| 0.0)?;
    let dims = e.result_dims()?;
    let body = e.body();
    let operands =
        [windows.x, body.sizes(&windows.kernel), body.sizes(&windows.strides), body.sizes(&[1, 1])];
    let ty = tensor(body.element(windows.x), &windows.dims);
    let sum = body.push("primitive.sum_pool_2d_v1", &operands, ty);
    let sum = body.reshape(sum, &dims);
    if excludes {
        let counts = counts(body, &windows, &dims);
        return Ok(vec![body.binary("primitive.divide_v1", sum, counts)]);
    }
    let count: u64 = windows.kernel.iter().product();
    Ok(vec![body.with_number("primitive.divide_v1", sum, count as f64)])
}

/// How many elements of each window are no margin: the product of what each axis has.
fn counts(body: &mut Body, windows: &Windows, dims: &[u64]) -> ValueId {
    let element = body.element(windows.x);
    let spatial = windows.inner.len();
    let kernel = &windows.kernel[windows.kernel.len() - spatial..];
    let mut product = body.splat(element, &vec![1; dims.len()], 1.0);
    for (axis, &(size, moves)) in windows.inner.iter().enumerate() {
        let inside = |index: u64| {
            let start = index * moves.stride;
            let end = (start + kernel[axis]).min(moves.before + size);
            end.saturating_sub(start.max(moves.before))
        };
        let bytes: Vec<u8> = (0..dims[axis + 2])
            .flat_map(|index| crate::convert::body::number(element, inside(index) as f64))
            .collect();
        let mut shape = vec![1; dims.len()];
        shape[axis + 2] = dims[axis + 2];
        let along = body.constant(tensor(element, &shape), &bytes);
        product = body.binary("primitive.mul_v1", product, along);
    }
    product
}
