//! `reverse` along whole dimensions and `reverse_sequence` along the beginning of one.

use smallvec::SmallVec;

use super::dims::{self, SIGNED_INDEX};
use crate::kernels::copy::StridedCopy;
use crate::mil::op::domain::{FLOAT_INT_BOOL, INT, MOVABLE_17};
use crate::mil::op::{Call, OpDef, OpError, Outputs, Param, define};
use crate::mil::{Opset, Type};
use crate::tensor::{DType, shape};

pub(super) const OPS: &[OpDef] = &[
    reverse(Opset::Ios15, &[Param::value("x", FLOAT_INT_BOOL), Param::constant("axes", INT).optional()]),
    reverse(Opset::Ios17, &[Param::value("x", MOVABLE_17), Param::constant("axes", INT).optional()]),
    reverse_sequence(Opset::Ios15, &sequence_params(FLOAT_INT_BOOL, INT)),
    reverse_sequence(Opset::Ios17, &sequence_params(MOVABLE_17, SIGNED_INDEX)),
];

const fn reverse(since: Opset, params: &'static [Param]) -> OpDef {
    define("reverse", since, params, infer_reverse, eval_reverse)
}

const fn reverse_sequence(since: Opset, params: &'static [Param]) -> OpDef {
    define("reverse_sequence", since, params, infer_sequence, eval_sequence)
}

const fn sequence_params(x: &'static [DType], lengths: &'static [DType]) -> [Param; 4] {
    [
        Param::value("x", x),
        Param::value("lengths", lengths),
        Param::constant("seq_axis", INT).or_int(0),
        Param::constant("batch_axis", INT).or_int(0),
    ]
}

/// Per dimension, whether it is reversed.
fn reversed(call: &Call<'_>, rank: usize) -> Result<SmallVec<[bool; 8]>, OpError> {
    let mut reversed: SmallVec<[bool; 8]> = SmallVec::from_elem(!call.has("axes"), rank);
    if call.has("axes") {
        for axis in call.ints("axes")? {
            let outside = || OpError::new(format!("`axes` contains {axis}, outside a tensor of rank {rank}"));
            let at = shape::axis(axis, rank).ok_or_else(outside)?;
            reversed[at] = !reversed[at];
        }
    }
    Ok(reversed)
}

fn infer_reverse(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    if let Some(rank) = x.rank() {
        reversed(call, rank)?;
    }
    Ok(vec![x.clone().into()])
}

fn eval_reverse(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    if x.shape().contains(&0) {
        return Ok(());
    }
    let strides = shape::strides(x.shape());
    let reversed = reversed(call, x.rank())?;
    let last = |i: usize| (x.shape()[i] - 1) * strides[i];
    let start = (0..x.rank()).filter(|&i| reversed[i]).map(last).sum();
    let mut copy = StridedCopy::new(start, 0);
    for (i, &len) in x.shape().iter().enumerate() {
        let stride = strides[i].cast_signed();
        copy.push(len, if reversed[i] { -stride } else { stride }, stride);
    }
    copy.run(x.dtype(), x.bytes(), outputs.tensor(0)?.bytes());
    Ok(())
}

fn infer_sequence(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (x, lengths) = (call.ty("x")?, call.ty("lengths")?);
    let batch = dims::of_rank("lengths", lengths, 1)?[0];
    if let Some(rank) = x.rank() {
        let (seq, batch_axis) = (call.axis("seq_axis", rank)?, call.axis("batch_axis", rank)?);
        if seq == batch_axis {
            return Err(OpError::new(format!("`seq_axis` and `batch_axis` are both {seq}")));
        }
        if dims::same(x.shape[batch_axis], batch).is_none() {
            let found = x.shape[batch_axis];
            return Err(OpError::new(format!("`lengths` has {batch} elements for a batch of {found}")));
        }
    }
    Ok(vec![x.clone().into()])
}

fn eval_sequence(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let (seq, batch) = (call.axis("seq_axis", x.rank())?, call.axis("batch_axis", x.rank())?);
    if x.shape().contains(&0) {
        return Ok(());
    }
    let strides = shape::strides(x.shape());
    let out = outputs.tensor(0)?.bytes();
    for (b, length) in call.ints("lengths")?.into_iter().enumerate() {
        let whole = x.shape()[seq];
        let reversed = usize::try_from(length).ok().filter(|&length| length <= whole);
        let reversed = reversed.ok_or_else(|| {
            OpError::new(format!("`lengths` contains {length}, but a sequence has {whole} elements"))
        })?;
        let start = b * strides[batch];
        let after = start + reversed * strides[seq];
        let head = (start + reversed.saturating_sub(1) * strides[seq], start, reversed, -1);
        for (from, to, len, direction) in [head, (after, after, whole - reversed, 1)] {
            let mut copy = StridedCopy::new(from, to);
            for (i, &dim) in x.shape().iter().enumerate() {
                let stride = strides[i].cast_signed();
                match i {
                    _ if i == seq => copy.push(len, direction * stride, stride),
                    _ if i == batch => {}
                    _ => copy.push(dim, stride, stride),
                }
            }
            copy.run(x.dtype(), x.bytes(), out);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn reverses_the_named_dimensions_or_all() {
        let x = Tensor::from_slice(&[2, 3], &[1, 2, 3, 4, 5, 6]).unwrap();
        let out = run("reverse", Opset::Ios15, &[("x", x.clone())]).unwrap();
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [6, 5, 4, 3, 2, 1]);
        let axes = Tensor::from_slice(&[1], &[-1]).unwrap();
        let out = run("reverse", Opset::Ios15, &[("x", x), ("axes", axes)]).unwrap();
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [3, 2, 1, 6, 5, 4]);
    }

    #[test]
    fn reverses_only_as_much_of_a_sequence_as_it_is_long() {
        let x = Tensor::from_slice(&[4, 2], &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let lengths = |values: [i32; 2]| Tensor::from_slice(&[2], &values).unwrap();
        let sequence = |lengths: Tensor| {
            let axis = ("batch_axis", Tensor::scalar(-1));
            run("reverse_sequence", Opset::Ios15, &[("x", x.clone()), ("lengths", lengths), axis])
        };
        let out = sequence(lengths([3, 0])).unwrap();
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [4, 1, 2, 3, 0, 5, 6, 7]);
        let error = sequence(lengths([5, 0])).unwrap_err();
        assert_eq!(error.to_string(), "`lengths` contains 5, but a sequence has 4 elements");
    }
}
