//! `depth_to_space`, `space_to_depth`, `pixel_shuffle` and `pixel_unshuffle`: square blocks of pixels to and
//! from channels. The two pairs differ in whether a channel number counts blocks or channels first.

use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;

pub(super) const OPS: &[OpDef] = &[
    moving("depth_to_space", Ios15, |c| DEPTH_TO_SPACE.infer(c), |c, o| DEPTH_TO_SPACE.eval(c, o))
        .takes(&[X, Param::constant("block_size", INT)]),
    moving("space_to_depth", Ios15, |c| SPACE_TO_DEPTH.infer(c), |c, o| SPACE_TO_DEPTH.eval(c, o))
        .takes(&[X, Param::constant("block_size", INT)]),
    moving("pixel_shuffle", Ios15, |c| SHUFFLE.infer(c), |c, o| SHUFFLE.eval(c, o))
        .takes(&[X, Param::constant("upscale_factor", INT)]),
    moving("pixel_unshuffle", Ios16, |c| UNSHUFFLE.infer(c), |c, o| UNSHUFFLE.eval(c, o))
        .takes(&[X, Param::constant("downscale_factor", &[DType::U32])]),
];

const X: Param = Param::value("x", FLOAT);

const fn moving(name: &'static str, since: Opset, infer: Infer, kernel: Kernel) -> OpDef {
    define(OpClass::Movement, name, since, infer, kernel)
}

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

/// One of the operations; `factor` is the parameter that says how large blocks are.
struct BlockMove {
    factor: &'static str,
    order: Order,
    towards: Towards,
}

const DEPTH_TO_SPACE: BlockMove =
    BlockMove { factor: "block_size", order: Order::Blocks, towards: Towards::Space };
const SPACE_TO_DEPTH: BlockMove = BlockMove { towards: Towards::Depth, ..DEPTH_TO_SPACE };
const SHUFFLE: BlockMove =
    BlockMove { factor: "upscale_factor", order: Order::Channels, towards: Towards::Space };
const UNSHUFFLE: BlockMove =
    BlockMove { factor: "downscale_factor", order: Order::Channels, towards: Towards::Depth };

impl BlockMove {
    fn block(&self, call: &Call<'_>) -> Result<usize> {
        dims::positive(self.factor, call.int(self.factor)?)
    }

    fn infer(&self, call: &Call<'_>) -> Result<Vec<Type>> {
        let (x, block) = (call.ty("x")?, self.block(call)?);
        let [batch, channels, height, width] = images(call)?;
        let area = dims::times(block, block)?;
        let grow = |dim, by| dims::map(dim, |n| dims::times(n, by));
        let shrink = |dim, by, what| dims::map(dim, |n| divide(n, by, what));
        let shape = match self.towards {
            Towards::Space => {
                [shrink(channels, area, "channels")?, grow(height, block)?, grow(width, block)?]
            }
            Towards::Depth => {
                [grow(channels, area)?, shrink(height, block, "rows")?, shrink(width, block, "columns")?]
            }
        };
        Ok(dims::one(x.dtype, [&[batch], &shape[..]].concat()))
    }

    fn eval(&self, call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
        let (x, out) = (call.tensor("x")?, outputs.tensor(0)?);
        done_if!(out.shape().contains(&0));
        let block = self.block(call)?;
        let (depth, space) = match self.towards {
            Towards::Space => (x.shape(), out.shape()),
            Towards::Depth => (out.shape(), x.shape()),
        };
        let &[batch, channels, tall, wide] = space else { refuse!("`x` has rank {}, not 4", x.rank()) };
        let (height, width) = (depth[2], depth[3]);
        let plane = height * width;
        let [by_channel, by_row, by_column] = match self.order {
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
        let in_output_order = match (self.towards, self.order) {
            (Towards::Space, _) => [0, 1, 2, 3, 4, 5],
            (Towards::Depth, Order::Blocks) => [0, 3, 5, 1, 2, 4],
            (Towards::Depth, Order::Channels) => [0, 1, 3, 5, 2, 4],
        };
        let mut copy = StridedCopy::new(0, 0);
        for (len, deep, spatial) in in_output_order.map(|i| axes[i]) {
            let (deep, spatial) = (deep.cast_signed(), spatial.cast_signed());
            let (from, to) = if self.towards == Towards::Space { (deep, spatial) } else { (spatial, deep) };
            copy.push(len, from, to);
        }
        copy.run(x.dtype(), x.bytes(), out.bytes());
        Ok(())
    }
}

fn images(call: &Call<'_>) -> Result<[Dim; 4]> {
    let dims = dims::of_rank("x", call.ty("x")?, 4)?;
    Ok([dims[0], dims[1], dims[2], dims[3]])
}

fn divide(n: usize, by: usize, what: &str) -> Result<usize> {
    match n % by {
        0 => Ok(n / by),
        _ => refuse!("`x` has {n} {what}, not a multiple of {by}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEEP: [f32; 16] = [1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15., 16.];
    const BY_BLOCK: [f32; 16] = [1., 5., 2., 6., 9., 13., 10., 14., 3., 7., 4., 8., 11., 15., 12., 16.];
    const BY_CHANNEL: [f32; 16] = [1., 3., 2., 4., 5., 7., 6., 8., 9., 11., 10., 12., 13., 15., 14., 16.];

    #[test]
    fn the_pairs_are_inverse_and_differ_in_channel_order() {
        let to_space = |op: &str, factor: &str, wanted: &[f32]| {
            let x = tensor(&[1, 8, 1, 2], &DEEP);
            gives::<f32>(run(op, Ios16, &[("x", x), (factor, Tensor::scalar(2))]), &[1, 2, 2, 4], wanted);
        };
        to_space("depth_to_space", "block_size", &BY_BLOCK);
        to_space("pixel_shuffle", "upscale_factor", &BY_CHANNEL);
        let back = |op: &str, factor: (&str, Tensor), from: &[f32]| {
            let x = tensor(&[1, 2, 2, 4], from);
            gives::<f32>(run(op, Ios16, &[("x", x), factor]), &[1, 8, 1, 2], &DEEP);
        };
        back("space_to_depth", ("block_size", Tensor::scalar(2)), &BY_BLOCK);
        back("pixel_unshuffle", ("downscale_factor", Tensor::scalar(2u32)), &BY_CHANNEL);
    }

    #[test]
    fn sizes_must_divide() {
        let x = tensor(&[1, 1, 3, 4], &[0.0f32; 12]);
        let error = run("space_to_depth", Ios15, &[("x", x), ("block_size", Tensor::scalar(2))]);
        refused(error, "`x` has 3 rows, not a multiple of 2");
    }
}
