//! `reverse` along whole dimensions and `reverse_sequence` along the beginning of one.

use smallvec::SmallVec;

use super::dims::SIGNED_INDEX;
use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;

pub(super) const OPS: &[OpDef] = &[
    reverse(Ios15).takes(&[Param::value("x", FLOAT_INT_BOOL), Param::constant("axes", INT).optional()]),
    reverse(Ios17).takes(&[Param::value("x", MOVABLE_17), Param::constant("axes", INT).optional()]),
    define(OpClass::Movement, "reverse_sequence", Ios15, infer_sequence, eval_sequence)
        .takes(&sequence_params(FLOAT_INT_BOOL, INT)),
    define(OpClass::Movement, "reverse_sequence", Ios17, infer_sequence, eval_sequence)
        .takes(&sequence_params(MOVABLE_17, SIGNED_INDEX)),
];

const fn reverse(since: Opset) -> OpDef {
    define(OpClass::Movement, "reverse", since, infer_reverse, eval_reverse)
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
fn reversed(call: &Call<'_>, rank: usize) -> Result<SmallVec<[bool; 8]>> {
    let mut reversed: SmallVec<[bool; 8]> = SmallVec::from_elem(!call.has("axes"), rank);
    if call.has("axes") {
        for axis in call.ints("axes")? {
            let outside = || op_error!("`axes` contains {axis}, outside a tensor of rank {rank}");
            let at = shape::axis(axis, rank).ok_or_else(outside)?;
            reversed[at] = !reversed[at];
        }
    }
    Ok(reversed)
}

fn infer_reverse(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    if let Some(rank) = x.rank() {
        reversed(call, rank)?;
    }
    Ok(vec![x.clone().into()])
}

fn eval_reverse(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    done_if!(x.shape().contains(&0));
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

fn infer_sequence(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, lengths) = (call.ty("x")?, call.ty("lengths")?);
    let batch = dims::of_rank("lengths", lengths, 1)?[0];
    if let Some(rank) = x.rank() {
        let (seq, batch_axis) = (call.axis("seq_axis", rank)?, call.axis("batch_axis", rank)?);
        refuse_if!(seq == batch_axis, "`seq_axis` and `batch_axis` are both {seq}");
        if dims::same(x.shape[batch_axis], batch).is_none() {
            let found = x.shape[batch_axis];
            refuse!("`lengths` has {batch} elements for a batch of {found}");
        }
    }
    Ok(vec![x.clone().into()])
}

fn eval_sequence(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let (seq, batch) = (call.axis("seq_axis", x.rank())?, call.axis("batch_axis", x.rank())?);
    done_if!(x.shape().contains(&0));
    let strides = shape::strides(x.shape());
    let out = outputs.tensor(0)?.bytes();
    for (b, length) in call.ints("lengths")?.into_iter().enumerate() {
        let whole = x.shape()[seq];
        let reversed = usize::try_from(length).ok().filter(|&length| length <= whole);
        let reversed = reversed
            .ok_or_else(|| op_error!("`lengths` contains {length}, but a sequence has {whole} elements"))?;
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
    use super::*;

    #[test]
    fn reverses_the_named_dimensions_or_all() {
        let x = tensor(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        assert_eq!(output::<i32>(run("reverse", Ios15, &[("x", x.clone())])), [6, 5, 4, 3, 2, 1]);
        let axes = tensor(&[1], &[-1]);
        assert_eq!(output::<i32>(run("reverse", Ios15, &[("x", x), ("axes", axes)])), [3, 2, 1, 6, 5, 4]);
    }

    #[test]
    fn reverses_only_as_much_of_a_sequence_as_it_is_long() {
        let x = tensor(&[4, 2], &[0, 1, 2, 3, 4, 5, 6, 7]);
        let lengths = |values: [i32; 2]| tensor(&[2], &values);
        let sequence = |lengths: Tensor| {
            let axis = ("batch_axis", Tensor::scalar(-1));
            run("reverse_sequence", Ios15, &[("x", x.clone()), ("lengths", lengths), axis])
        };
        let out = sequence(lengths([3, 0])).unwrap();
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [4, 1, 2, 3, 0, 5, 6, 7]);
        refused(sequence(lengths([5, 0])), "`lengths` contains 5, but a sequence has 4 elements");
    }
}
