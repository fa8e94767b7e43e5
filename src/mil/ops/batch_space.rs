//! `space_to_batch` and `batch_to_space`: blocks of pixels to and from the batch dimension, with a margin
//! around the image that is added or cropped.

use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Movement, "space_to_batch", Ios15, infer_batch, eval_batch).takes(&params("paddings")),
    define(OpClass::Movement, "batch_to_space", Ios15, infer_space, eval_space).takes(&params("crops")),
];

const fn params(margins: &'static str) -> [Param; 3] {
    [Param::value("x", FLOAT), Param::constant("block_shape", INT), Param::constant(margins, INT)]
}

/// Block sizes and margins: rows, then columns.
struct Blocks {
    block: [usize; 2],
    margin: [[usize; 2]; 2],
}

impl Blocks {
    fn read(call: &Call<'_>, margins: &str) -> Result<Blocks> {
        let [height, width] = call.ints("block_shape")?[..] else {
            refuse!("`block_shape` does not have 2 elements")
        };
        let [top, bottom, left, right] = call.ints(margins)?[..] else {
            refuse!("`{margins}` does not have shape [2, 2]")
        };
        let block = |size| dims::positive("block_shape", size);
        let margin = |size| dims::size(margins, size);
        Ok(Blocks {
            block: [block(height)?, block(width)?],
            margin: [[margin(top)?, margin(bottom)?], [margin(left)?, margin(right)?]],
        })
    }

    fn area(&self) -> Result<usize> {
        dims::times(self.block[0], self.block[1])
    }

    /// Along one axis, for the pixels at `offset` in their blocks: the first block whose pixel lies inside the
    /// image, the number of such blocks, and where in the image the first of these pixels lies.
    fn inside(&self, axis: usize, offset: usize, blocks: usize, image: usize) -> (usize, usize, usize) {
        let (block, before) = (self.block[axis], self.margin[axis][0]);
        let first = before.saturating_sub(offset).div_ceil(block);
        let end = (before + image).saturating_sub(offset).div_ceil(block).min(blocks);
        (first, end.saturating_sub(first), (first * block + offset).saturating_sub(before))
    }

    /// One copy per position in a block; `batch` and `space` are the shapes of either side.
    fn copies(&self, batch: &[usize], space: &[usize], mut f: impl FnMut(BlockCopy)) {
        if batch.contains(&0) || space.contains(&0) {
            return;
        }
        let (deep, flat) = (shape::strides(batch), shape::strides(space));
        for row in 0..self.block[0] {
            for column in 0..self.block[1] {
                let (top, rows, y) = self.inside(0, row, batch[2], space[2]);
                let (left, columns, x) = self.inside(1, column, batch[3], space[3]);
                let image = (row * self.block[1] + column) * space[0];
                f(BlockCopy {
                    batch: image * deep[0] + top * deep[2] + left,
                    space: y * flat[2] + x,
                    axes: [
                        (space[0], deep[0], flat[0]),
                        (space[1], deep[1], flat[1]),
                        (rows, deep[2], flat[2] * self.block[0]),
                        (columns, deep[3], flat[3] * self.block[1]),
                    ],
                });
            }
        }
    }
}

/// Start on either side, and per axis its length and the steps on either side.
struct BlockCopy {
    batch: usize,
    space: usize,
    axes: [(usize, usize, usize); 4],
}

fn infer_batch(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, blocks) = (call.ty("x")?, Blocks::read(call, "paddings")?);
    let mut dims = dims::of_rank("x", x, 4)?;
    dims[0] = dims::map(dims[0], |n| dims::times(n, blocks.area()?))?;
    for axis in 0..2 {
        let ([before, after], block) = (blocks.margin[axis], blocks.block[axis]);
        dims[2 + axis] = dims::map(dims[2 + axis], |n| {
            let padded = dims::plus(n, dims::plus(before, after)?)?;
            refuse_if!(
                padded % block != 0,
                "dimension {} has {padded} elements after padding, not a multiple of {block}",
                2 + axis
            );
            Ok(padded / block)
        })?;
    }
    Ok(dims::one(x.dtype, dims))
}

fn infer_space(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, blocks) = (call.ty("x")?, Blocks::read(call, "crops")?);
    let mut dims = dims::of_rank("x", x, 4)?;
    let area = blocks.area()?;
    dims[0] = dims::map(dims[0], |n| match n % area {
        0 => Ok(n / area),
        _ => refuse!("a batch of {n} is not a multiple of {area} pixels in a block"),
    })?;
    for axis in 0..2 {
        let ([before, after], block) = (blocks.margin[axis], blocks.block[axis]);
        dims[2 + axis] = dims::map(dims[2 + axis], |n| {
            let (whole, crops) = (dims::times(n, block)?, dims::plus(before, after)?);
            whole.checked_sub(crops).ok_or_else(|| {
                op_error!("`crops` takes {crops} elements from {whole} in dimension {}", 2 + axis)
            })
        })?;
    }
    Ok(dims::one(x.dtype, dims))
}

fn eval_batch(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, blocks, out) = (call.tensor("x")?, Blocks::read(call, "paddings")?, outputs.tensor(0)?);
    let shape = out.shape();
    let bytes = out.bytes();
    bytes.fill(0);
    blocks.copies(shape, x.shape(), |part| {
        let mut copy = StridedCopy::new(part.space, part.batch);
        for (len, batch, space) in part.axes {
            copy.push(len, space.cast_signed(), batch.cast_signed());
        }
        copy.run(x.dtype(), x.bytes(), bytes);
    });
    Ok(())
}

fn eval_space(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, blocks, out) = (call.tensor("x")?, Blocks::read(call, "crops")?, outputs.tensor(0)?);
    let shape = out.shape();
    let bytes = out.bytes();
    blocks.copies(x.shape(), shape, |part| {
        let mut copy = StridedCopy::new(part.batch, part.space);
        for (len, batch, space) in part.axes {
            copy.push(len, batch.cast_signed(), space.cast_signed());
        }
        copy.run(x.dtype(), x.bytes(), bytes);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(values: [i32; 4]) -> Tensor {
        tensor(&[2, 2], &values)
    }

    #[test]
    fn blocks_become_batches_and_back() {
        let block = tensor(&[2], &[2, 2]);
        let flat: Vec<f32> = (1..=16u8).map(f32::from).collect();
        let x = tensor(&[2, 1, 2, 4], &flat);
        let args = [("x", x), ("block_shape", block.clone()), ("paddings", square([0, 0, 2, 0]))];
        let out = run("space_to_batch", Ios15, &args).unwrap();
        assert_eq!(out[0].shape(), [8, 1, 1, 3]);
        let wanted =
            [[0, 1, 3], [0, 9, 11], [0, 2, 4], [0, 10, 12], [0, 5, 7], [0, 13, 15], [0, 6, 8], [0, 14, 16]];
        assert_eq!(
            out[0].view().slice::<f32>().unwrap(),
            wanted.concat().iter().map(|&v| v as f32).collect::<Vec<_>>()
        );
        let args = [("x", out[0].clone()), ("block_shape", block), ("crops", square([0, 0, 2, 0]))];
        gives::<f32>(run("batch_to_space", Ios15, &args), &[2, 1, 2, 4], &flat);
    }

    #[test]
    fn crops_must_leave_something_to_crop() {
        let x = tensor(&[4, 1, 1, 1], &[0.0f32; 4]);
        let block = tensor(&[2], &[2, 2]);
        let args = [("x", x), ("block_shape", block), ("crops", square([1, 2, 0, 0]))];
        refused(run("batch_to_space", Ios15, &args), "`crops` takes 3 elements from 2 in dimension 2");
    }
}
