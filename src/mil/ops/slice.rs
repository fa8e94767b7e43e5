//! `slice_by_index` and `slice_by_size`: a part of a tensor.

use std::ops::Range;

use super::dims::SIGNED_INDEX;
use super::prelude::*;
pub use super::slice_bounds::Span;
use super::slice_bounds::{self, Bounds, Direction};
use anemeter_kernels::copy::StridedCopy;

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Slice(first_element), "slice_by_index", Ios15, infer_index, eval_index)
        .takes(&index_params(FLOAT_INT_BOOL, INT)),
    define(OpClass::Slice(first_element), "slice_by_index", Ios17, infer_index, eval_index)
        .takes(&index_params(MOVABLE_17, SIGNED_INDEX)),
    define(OpClass::Slice(|_| None), "slice_by_size", Ios15, infer_size, eval_size)
        .takes(&size_params(FLOAT_INT_BOOL, INT)),
    define(OpClass::Slice(|_| None), "slice_by_size", Ios17, infer_size, eval_size)
        .takes(&size_params(MOVABLE_17, SIGNED_INDEX)),
];

const fn index_params(x: &'static [DType], index: &'static [DType]) -> [Param; 7] {
    let [begin, end, stride, begin_mask, end_mask, squeeze_mask] = slice_bounds::params(index);
    [Param::value("x", x), begin, end, stride, begin_mask, end_mask, squeeze_mask]
}

const fn size_params(x: &'static [DType], index: &'static [DType]) -> [Param; 3] {
    [Param::value("x", x), Param::value("begin", index).group('U'), Param::value("size", index).group('U')]
}

fn infer_index(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    Ok(dims::one(x.dtype, Bounds::read(call, rank)?.dims(&x.shape)?))
}

/// The first element of `x` that `slice_by_index` takes, if it takes consecutive ones.
fn first_element(call: &Call<'_>) -> Option<usize> {
    let shape = call.ty("x").ok()?.concrete()?;
    Bounds::read(call, shape.len()).ok()?.first_of_run(&shape)
}

/// What `slice_by_index` takes of one axis of `x`, if it takes a run of it and all of every other.
pub fn run_of(axis: usize, call: &Call<'_>) -> Option<Range<usize>> {
    let shape = call.ty("x").ok()?.concrete()?;
    Bounds::read(call, shape.len()).ok()?.run_of(axis, &shape)
}

/// What `slice_by_index` or `slice_update` selects of each axis of `x`, if that is known.
pub fn spans(call: &Call<'_>) -> Result<Vec<Span>> {
    let x = call.ty("x")?;
    match x.concrete() {
        Some(shape) => Bounds::read(call, shape.len())?.spans(&shape),
        None => refuse!("`x` is a {x}, whose sizes are not known"),
    }
}

fn eval_index(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let bounds = Bounds::read(call, x.rank())?;
    let out = outputs.tensor(0)?;
    let found = bounds.shape(x.shape())?;
    if found[..] != *out.shape() {
        let planned = out.shape();
        refuse!("the slice has shape {found:?}, planned was {planned:?}");
    }
    done_if!(out.shape().contains(&0));
    bounds.copy(x.shape(), Direction::OutOf)?.run(x.dtype(), x.bytes(), out.bytes());
    Ok(())
}

fn infer_size(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let begin = dims::vector(call, "begin", rank)?;
    let Some(size) = dims::vector(call, "size", rank)? else {
        return Ok(dims::one(x.dtype, vec![Dim::Unknown; rank]));
    };
    let dims = (0..rank).map(|axis| match (size[axis], &begin, x.shape[axis].size()) {
        (size, Some(begin), Some(whole)) => part(axis, begin[axis], size, whole).map(|(_, len)| len.into()),
        (-1, ..) => Ok(Dim::Unknown),
        (size, ..) => dims::size("size", size).map(Dim::from),
    });
    Ok(dims::one(x.dtype, dims.collect::<Result<_, _>>()?))
}

/// Start and length of the part of one dimension; a size of -1 is all that is left.
fn part(axis: usize, begin: i64, size: i64, whole: usize) -> Result<(usize, usize)> {
    let start = if begin < 0 { begin.saturating_add(whole as i64) } else { begin };
    let outside = || {
        op_error!(
            "`begin` {begin} and `size` {size} lie outside dimension {axis}, which has {whole} elements"
        )
    };
    let start = usize::try_from(start).ok().filter(|&start| start <= whole).ok_or_else(outside)?;
    let len = if size == -1 { whole - start } else { dims::size("size", size)? };
    if len > whole - start {
        return Err(outside());
    }
    Ok((start, len))
}

fn eval_size(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let vector = |name| dims::vector(call, name, x.rank());
    let (Some(begin), Some(size)) = (vector("begin")?, vector("size")?) else {
        refuse!("`begin` or `size` is not known")
    };
    let out = outputs.tensor(0)?;
    done_if!(out.shape().contains(&0));
    let (from, to) = (shape::strides(x.shape()), shape::strides(out.shape()));
    let mut start = 0;
    for axis in 0..x.rank() {
        let (first, len) = part(axis, begin[axis], size[axis], x.shape()[axis])?;
        if len != out.shape()[axis] {
            let planned = out.shape()[axis];
            refuse!("dimension {axis} has {len} elements, planned were {planned}");
        }
        start += first * from[axis];
    }
    let mut copy = StridedCopy::new(start, 0);
    for axis in 0..x.rank() {
        copy.push(out.shape()[axis], from[axis].cast_signed(), to[axis].cast_signed());
    }
    copy.run(x.dtype(), x.bytes(), out.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x() -> Tensor {
        let values: Vec<i16> = (0..24).collect();
        tensor(&[2, 3, 4], &values)
    }

    fn ints<const N: usize>(values: [i8; N]) -> Tensor {
        tensor(&[N], &values)
    }

    #[test]
    fn by_index_takes_strides_masks_and_indices() {
        let args = [
            ("x", x()),
            ("begin", ints([0, -1, 3])),
            ("end", ints([0, 0, 0])),
            ("stride", ints([-1, 1, -2])),
            ("begin_mask", bools(&[3], &[true, false, false])),
            ("end_mask", bools(&[3], &[true, false, true])),
            ("squeeze_mask", bools(&[3], &[false, true, false])),
        ];
        gives::<i16>(run("slice_by_index", Ios17, &args), &[2, 2], &[23, 21, 11, 9]);
    }

    #[test]
    fn an_index_outside_is_an_error() {
        let args = [
            ("x", x()),
            ("begin", ints([0, 3, 0])),
            ("end", ints([1, 1, 1])),
            ("squeeze_mask", bools(&[3], &[false, true, false])),
        ];
        refused(run("slice_by_index", Ios17, &args), "`begin` is 3 for dimension 1, which has 3 elements");
    }

    #[test]
    fn by_size_takes_the_rest_for_minus_one() {
        let args = [("x", x()), ("begin", ints([1, -2, 1])), ("size", ints([-1, -1, 3]))];
        gives::<i16>(run("slice_by_size", Ios17, &args), &[1, 2, 3], &[17, 18, 19, 21, 22, 23]);
        let args = [("x", x()), ("begin", ints([1, 0, 0])), ("size", ints([2, 1, 1]))];
        let error = run("slice_by_size", Ios17, &args).unwrap_err();
        let wanted = "`begin` 1 and `size` 2 lie outside dimension 0, which has 2 elements";
        assert_eq!(error.to_string(), wanted);
    }
}
