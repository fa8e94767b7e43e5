//! `avg_pool`, `max_pool` and `l2_pool` over up to three spatial dimensions.

use rayon::prelude::*;

use super::conv::{PAD, STRIDES};
use super::windows::{Padding, Windows, in_three, pads, per_axis, spatial_rank};
use crate::kernels::floats::{self, Sink};
use crate::kernels::pool::{Pooling, pool};
use crate::mil::op::domain::{BOOL, FLOAT, INT, TEXT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, TensorType, Type};
use crate::tensor::Shape;

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "avg_pool",
        since: Opset::Ios15,
        params: &[
            X,
            KERNEL_SIZES,
            STRIDES,
            PAD_TYPE,
            PAD,
            CEIL_MODE,
            Param::constant("exclude_padding_from_average", BOOL).or_bool(false),
        ],
        infer: |call| infer(call, 3),
        eval: Eval::Kernel(|call, outputs| {
            let exclude_padding = call.bool("exclude_padding_from_average")?;
            eval(call, outputs, |padded| Pooling::Average { exclude_padding, padded })
        }),
    },
    OpDef {
        name: "l2_pool",
        since: Opset::Ios15,
        params: &[X, KERNEL_SIZES, STRIDES, PAD_TYPE, PAD, CEIL_MODE],
        infer: |call| infer(call, 2),
        eval: Eval::Kernel(|call, outputs| eval(call, outputs, |_| Pooling::L2)),
    },
    OpDef {
        name: "max_pool",
        since: Opset::Ios15,
        params: &[X, KERNEL_SIZES, STRIDES, PAD_TYPE, PAD, CEIL_MODE],
        infer: |call| infer(call, 3),
        eval: Eval::Kernel(|call, outputs| eval(call, outputs, |_| Pooling::Max)),
    },
];

const X: Param = Param::value("x", FLOAT);
const KERNEL_SIZES: Param = Param::constant("kernel_sizes", INT);
const PAD_TYPE: Param = Param::constant("pad_type", TEXT);
const CEIL_MODE: Param = Param::constant("ceil_mode", BOOL).or_bool(false);

/// Multiply-adds from which threads are worth their start.
const PARALLEL: usize = 1 << 16;

fn windows(call: &Call<'_>, spatial: usize) -> Result<Windows, OpError> {
    let windows = Windows {
        stride: per_axis(call, "strides", spatial)?,
        dilation: smallvec::smallvec![1; spatial],
        padding: Padding::of(call, spatial)?,
        ceil: call.bool("ceil_mode")?,
    };
    if windows.ceil {
        if spatial > 2 {
            return Err(OpError::new(format!(
                "`ceil_mode` is set, which {spatial} spatial dimensions do not allow"
            )));
        }
        if windows.padding == Padding::Same {
            return Err(OpError::new("`ceil_mode` is set, which `pad_type` `same` does not allow"));
        }
        let pad = pads(call, spatial)?;
        if pad.chunks_exact(2).any(|pair| pair[0] != pair[1]) {
            return Err(OpError::new(format!(
                "`ceil_mode` is set and `pad` is {:?}, which is not symmetric",
                &pad[..]
            )));
        }
    }
    Ok(windows)
}

fn kernel(call: &Call<'_>, spatial: usize) -> Result<Shape, OpError> {
    let sizes = per_axis(call, "kernel_sizes", spatial)?;
    Ok(sizes.iter().map(|&size| usize::try_from(size).unwrap_or(1)).collect())
}

fn infer(call: &Call<'_>, most: usize) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else {
        return Ok(vec![x.clone().into()]);
    };
    let spatial = spatial_rank(rank, most)?;
    let kernel: Vec<_> = kernel(call, spatial)?.iter().map(|&size| Dim::from(size)).collect();
    let mut shape = x.shape[..2].to_vec();
    shape.extend(windows(call, spatial)?.output_dims(&x.shape[2..], &kernel)?);
    Ok(vec![TensorType::new(x.dtype, shape).into()])
}

fn eval(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    pooling: impl Fn([usize; 3]) -> Pooling,
) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let (out, scratch) = outputs.with_scratch(0)?;
    if out.shape().contains(&0) {
        return Ok(());
    }
    let spatial = x.rank() - 2;
    let (windows, kernel) = (windows(call, spatial)?, kernel(call, spatial)?);
    let input = &x.shape()[2..];
    let window = windows.window(input, &kernel, &out.shape()[2..]);
    let padded: Shape = (0..spatial)
        .map(|axis| {
            let (before, after) = windows.pad(axis, input[axis], kernel[axis]);
            usize::try_from(input[axis] as i128 + before + after).unwrap_or(0)
        })
        .collect();
    let pooling = pooling(in_three(&padded));
    let round_steps = call.rounds(x.dtype());
    let out_len = out.shape().iter().product();
    let [copy, result] = scratch.floats([floats::scratch_len(&x), out_len]);
    let x = floats::read(&x, copy);
    let compute = |(plane, out): (usize, &mut [f32])| {
        let input = &x[plane * window.input_len()..][..window.input_len()];
        pool(&window, pooling, input, out, round_steps);
    };
    let plane = window.output_len();
    let elements = window.kernel.iter().fold(out_len, |n, &size| n.saturating_mul(size));
    if elements >= PARALLEL {
        result.par_chunks_exact_mut(plane).enumerate().for_each(compute);
    } else {
        result.chunks_exact_mut(plane).enumerate().for_each(compute);
    }
    Sink::new(out)?.write(0, result);
    Ok(())
}
