//! `space_to_batch` and `batch_to_space`: blocks of pixels to and from the batch dimension, with a margin
//! around the image that is added or cropped.

use super::dims;
use crate::kernels::copy::StridedCopy;
use crate::mil::op::domain::{FLOAT, INT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Opset, Type};
use crate::tensor::shape;

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "space_to_batch",
        since: Opset::Ios15,
        params: &[
            Param::value("x", FLOAT),
            Param::constant("block_shape", INT),
            Param::constant("paddings", INT),
        ],
        infer: infer_batch,
        eval: Eval::Kernel(eval_batch),
    },
    OpDef {
        name: "batch_to_space",
        since: Opset::Ios15,
        params: &[
            Param::value("x", FLOAT),
            Param::constant("block_shape", INT),
            Param::constant("crops", INT),
        ],
        infer: infer_space,
        eval: Eval::Kernel(eval_space),
    },
];

/// Block sizes and margins: rows, then columns.
struct Blocks {
    block: [usize; 2],
    margin: [[usize; 2]; 2],
}

impl Blocks {
    fn read(call: &Call<'_>, margins: &str) -> Result<Blocks, OpError> {
        let [height, width] = call.ints("block_shape")?[..] else {
            return Err(OpError::new("`block_shape` does not have 2 elements"));
        };
        let [top, bottom, left, right] = call.ints(margins)?[..] else {
            return Err(OpError::new(format!("`{margins}` does not have shape [2, 2]")));
        };
        let block = |size| dims::positive("block_shape", size);
        let margin = |size| dims::size(margins, size);
        Ok(Blocks {
            block: [block(height)?, block(width)?],
            margin: [[margin(top)?, margin(bottom)?], [margin(left)?, margin(right)?]],
        })
    }

    fn area(&self) -> Result<usize, OpError> {
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

fn infer_batch(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (x, blocks) = (call.ty("x")?, Blocks::read(call, "paddings")?);
    let mut dims = dims::of_rank("x", x, 4)?;
    dims[0] = dims::map(dims[0], |n| dims::times(n, blocks.area()?))?;
    for axis in 0..2 {
        let ([before, after], block) = (blocks.margin[axis], blocks.block[axis]);
        dims[2 + axis] = dims::map(dims[2 + axis], |n| {
            let padded = dims::plus(n, dims::plus(before, after)?)?;
            if padded % block != 0 {
                return Err(OpError::new(format!(
                    "dimension {} has {padded} elements after padding, not a multiple of {block}",
                    2 + axis
                )));
            }
            Ok(padded / block)
        })?;
    }
    Ok(dims::one(x.dtype, dims))
}

fn infer_space(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (x, blocks) = (call.ty("x")?, Blocks::read(call, "crops")?);
    let mut dims = dims::of_rank("x", x, 4)?;
    let area = blocks.area()?;
    dims[0] = dims::map(dims[0], |n| match n % area {
        0 => Ok(n / area),
        _ => Err(OpError::new(format!("a batch of {n} is not a multiple of {area} pixels in a block"))),
    })?;
    for axis in 0..2 {
        let ([before, after], block) = (blocks.margin[axis], blocks.block[axis]);
        dims[2 + axis] = dims::map(dims[2 + axis], |n| {
            let (whole, crops) = (dims::times(n, block)?, dims::plus(before, after)?);
            whole.checked_sub(crops).ok_or_else(|| {
                OpError::new(format!("`crops` takes {crops} elements from {whole} in dimension {}", 2 + axis))
            })
        })?;
    }
    Ok(dims::one(x.dtype, dims))
}

fn eval_batch(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (x, blocks) = (call.tensor("x")?, Blocks::read(call, "paddings")?);
    let out = outputs.tensor(0)?;
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

fn eval_space(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (x, blocks) = (call.tensor("x")?, Blocks::read(call, "crops")?);
    let out = outputs.tensor(0)?;
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
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    fn square(values: [i32; 4]) -> Tensor {
        Tensor::from_slice(&[2, 2], &values).unwrap()
    }

    #[test]
    fn blocks_become_batches_and_back() {
        let block = Tensor::from_slice(&[2], &[2, 2]).unwrap();
        let flat: Vec<f32> = (1..=16u8).map(f32::from).collect();
        let x = Tensor::from_slice(&[2, 1, 2, 4], &flat).unwrap();
        let args = [("x", x), ("block_shape", block.clone()), ("paddings", square([0, 0, 2, 0]))];
        let out = run("space_to_batch", Opset::Ios15, &args).unwrap();
        assert_eq!(out[0].shape(), [8, 1, 1, 3]);
        let wanted =
            [[0, 1, 3], [0, 9, 11], [0, 2, 4], [0, 10, 12], [0, 5, 7], [0, 13, 15], [0, 6, 8], [0, 14, 16]];
        assert_eq!(
            out[0].view().slice::<f32>().unwrap(),
            wanted.concat().iter().map(|&v| v as f32).collect::<Vec<_>>()
        );
        let args = [("x", out[0].clone()), ("block_shape", block), ("crops", square([0, 0, 2, 0]))];
        let out = run("batch_to_space", Opset::Ios15, &args).unwrap();
        assert_eq!(out[0].shape(), [2, 1, 2, 4]);
        assert_eq!(out[0].view().slice::<f32>().unwrap(), flat);
    }

    #[test]
    fn crops_must_leave_something_to_crop() {
        let x = Tensor::from_slice(&[4, 1, 1, 1], &[0.0f32; 4]).unwrap();
        let block = Tensor::from_slice(&[2], &[2, 2]).unwrap();
        let args = [("x", x), ("block_shape", block), ("crops", square([1, 2, 0, 0]))];
        let error = run("batch_to_space", Opset::Ios15, &args).unwrap_err();
        assert_eq!(error.to_string(), "`crops` takes 3 elements from 2 in dimension 2");
    }
}
