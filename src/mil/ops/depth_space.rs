//! `depth_to_space`, `space_to_depth`, `pixel_shuffle` and `pixel_unshuffle`: square blocks of pixels to and
//! from channels. The two pairs differ in whether a channel number counts blocks or channels first.

use super::dims;
use crate::kernels::copy::StridedCopy;
use crate::mil::op::domain::{FLOAT, INT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, Type};
use crate::tensor::DType;

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "depth_to_space",
        since: Opset::Ios15,
        params: &[Param::value("x", FLOAT), Param::constant("block_size", INT)],
        infer: |call| to_space(call, "block_size"),
        eval: Eval::Kernel(|call, out| move_blocks(call, out, "block_size", Order::Blocks, Towards::Space)),
    },
    OpDef {
        name: "space_to_depth",
        since: Opset::Ios15,
        params: &[Param::value("x", FLOAT), Param::constant("block_size", INT)],
        infer: |call| to_depth(call, "block_size"),
        eval: Eval::Kernel(|call, out| move_blocks(call, out, "block_size", Order::Blocks, Towards::Depth)),
    },
    OpDef {
        name: "pixel_shuffle",
        since: Opset::Ios15,
        params: &[Param::value("x", FLOAT), Param::constant("upscale_factor", INT)],
        infer: |call| to_space(call, "upscale_factor"),
        eval: Eval::Kernel(|call, out| {
            move_blocks(call, out, "upscale_factor", Order::Channels, Towards::Space)
        }),
    },
    OpDef {
        name: "pixel_unshuffle",
        since: Opset::Ios16,
        params: &[Param::value("x", FLOAT), Param::constant("downscale_factor", &[DType::U32])],
        infer: |call| to_depth(call, "downscale_factor"),
        eval: Eval::Kernel(|call, out| {
            move_blocks(call, out, "downscale_factor", Order::Channels, Towards::Depth)
        }),
    },
];

/// What the slowest part of a channel number on the deep side counts.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Blocks,
    Channels,
}

#[derive(Clone, Copy, PartialEq)]
enum Towards {
    Space,
    Depth,
}

fn to_space(call: &Call<'_>, factor: &str) -> Result<Vec<Type>, OpError> {
    let (x, block) = (call.ty("x")?, dims::positive(factor, call.int(factor)?)?);
    let [batch, channels, height, width] = images(call)?;
    let area = dims::times(block, block)?;
    let channels = dims::map(channels, |n| divide(n, area, "channels"))?;
    let grow = |dim| dims::map(dim, |n| dims::times(n, block));
    Ok(dims::one(x.dtype, vec![batch, channels, grow(height)?, grow(width)?]))
}

fn to_depth(call: &Call<'_>, factor: &str) -> Result<Vec<Type>, OpError> {
    let (x, block) = (call.ty("x")?, dims::positive(factor, call.int(factor)?)?);
    let [batch, channels, height, width] = images(call)?;
    let area = dims::times(block, block)?;
    let channels = dims::map(channels, |n| dims::times(n, area))?;
    let height = dims::map(height, |n| divide(n, block, "rows"))?;
    let width = dims::map(width, |n| divide(n, block, "columns"))?;
    Ok(dims::one(x.dtype, vec![batch, channels, height, width]))
}

fn images(call: &Call<'_>) -> Result<[Dim; 4], OpError> {
    let dims = dims::of_rank("x", call.ty("x")?, 4)?;
    Ok([dims[0], dims[1], dims[2], dims[3]])
}

fn divide(n: usize, by: usize, what: &str) -> Result<usize, OpError> {
    match n % by {
        0 => Ok(n / by),
        _ => Err(OpError::new(format!("`x` has {n} {what}, not a multiple of {by}"))),
    }
}

fn move_blocks(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    factor: &str,
    order: Order,
    towards: Towards,
) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let out = outputs.tensor(0)?;
    if out.shape().contains(&0) {
        return Ok(());
    }
    let block = dims::positive(factor, call.int(factor)?)?;
    let (depth, space) = match towards {
        Towards::Space => (x.shape(), out.shape()),
        Towards::Depth => (out.shape(), x.shape()),
    };
    let &[batch, channels, tall, wide] = space else {
        return Err(OpError::new(format!("`x` has rank {}, not 4", x.rank())));
    };
    let (height, width) = (depth[2], depth[3]);
    let plane = height * width;
    let [by_channel, by_row, by_column] = match order {
        Order::Blocks => [plane, block * channels * plane, channels * plane],
        Order::Channels => [block * block * plane, block * plane, plane],
    };
    // Batch, channel, row, row within the block, column, column within the block; steps in depth, in space.
    let axes = [
        (batch, depth[1] * plane, channels * tall * wide),
        (channels, by_channel, tall * wide),
        (height, width, block * wide),
        (block, by_row, wide),
        (width, 1, block),
        (block, by_column, 1),
    ];
    let in_output_order = match (towards, order) {
        (Towards::Space, _) => [0, 1, 2, 3, 4, 5],
        (Towards::Depth, Order::Blocks) => [0, 3, 5, 1, 2, 4],
        (Towards::Depth, Order::Channels) => [0, 1, 3, 5, 2, 4],
    };
    let mut copy = StridedCopy::new(0, 0);
    for (len, deep, spatial) in in_output_order.map(|i| axes[i]) {
        let (deep, spatial) = (deep.cast_signed(), spatial.cast_signed());
        let (from, to) = if towards == Towards::Space { (deep, spatial) } else { (spatial, deep) };
        copy.push(len, from, to);
    }
    copy.run(x.dtype(), x.bytes(), out.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    const DEEP: [f32; 16] = [1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15., 16.];
    const BY_BLOCK: [f32; 16] = [1., 5., 2., 6., 9., 13., 10., 14., 3., 7., 4., 8., 11., 15., 12., 16.];
    const BY_CHANNEL: [f32; 16] = [1., 3., 2., 4., 5., 7., 6., 8., 9., 11., 10., 12., 13., 15., 14., 16.];

    #[test]
    fn the_pairs_are_inverse_and_differ_in_channel_order() {
        let to_space = |op: &str, factor: &str, wanted: &[f32]| {
            let x = Tensor::from_slice(&[1, 8, 1, 2], &DEEP).unwrap();
            let out = run(op, Opset::Ios16, &[("x", x), (factor, Tensor::scalar(2))]).unwrap();
            assert_eq!(out[0].shape(), [1, 2, 2, 4]);
            assert_eq!(out[0].view().slice::<f32>().unwrap(), wanted);
        };
        to_space("depth_to_space", "block_size", &BY_BLOCK);
        to_space("pixel_shuffle", "upscale_factor", &BY_CHANNEL);
        let back = |op: &str, factor: (&str, Tensor), from: &[f32]| {
            let x = Tensor::from_slice(&[1, 2, 2, 4], from).unwrap();
            let out = run(op, Opset::Ios16, &[("x", x), factor]).unwrap();
            assert_eq!(out[0].shape(), [1, 8, 1, 2]);
            assert_eq!(out[0].view().slice::<f32>().unwrap(), DEEP);
        };
        back("space_to_depth", ("block_size", Tensor::scalar(2)), &BY_BLOCK);
        back("pixel_unshuffle", ("downscale_factor", Tensor::scalar(2u32)), &BY_CHANNEL);
    }

    #[test]
    fn sizes_must_divide() {
        let x = Tensor::from_slice(&[1, 1, 3, 4], &[0.0f32; 12]).unwrap();
        let error = run("space_to_depth", Opset::Ios15, &[("x", x), ("block_size", Tensor::scalar(2))]);
        assert_eq!(error.unwrap_err().to_string(), "`x` has 3 rows, not a multiple of 2");
    }
}
