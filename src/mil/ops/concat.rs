//! `concat` along a dimension and `stack` along a new one.

use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;
use anemeter_kernels::tensor::DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Movement, "concat", Ios15, infer_concat, eval_concat).takes(&[
        Param::value("values", WHOLE_BYTES).many(),
        Param::constant("axis", INT),
        Param::constant("interleave", BOOL).or_bool(false),
    ]),
    define(OpClass::Movement, "stack", Ios15, infer_stack, eval_stack)
        .takes(&[Param::value("values", WHOLE_BYTES).many(), Param::constant("axis", INT)]),
];

/// Tuples of tensors take whatever the tensors hold, as long as it can be moved by bytes.
const WHOLE_BYTES: &[DType] = &[Bool, F16, F32, F64, BF16, I8, I16, I32, I64, U8, U16, U32, U64];

/// The type that `values` have in common but for dimension `except`, which depends on their rank.
fn common(call: &Call<'_>, except: impl Fn(usize) -> Result<Option<usize>>) -> Result<TensorType> {
    let first = match call.count("values") {
        0 => refuse!("`values` is empty"),
        _ => call.ty_at("values", 0)?,
    };
    if !WHOLE_BYTES.contains(&first.dtype) {
        refuse!("`values` hold {}, which has no whole bytes", first.dtype);
    }
    let mut common = first.clone();
    for i in 1..call.count("values") {
        let next = call.ty_at("values", i)?;
        let unlike = || op_error!("`values` {i} is {next}, which does not fit {first}");
        if next.dtype != first.dtype {
            return Err(unlike());
        }
        let (Some(rank), Some(next_rank)) = (common.rank(), next.rank()) else {
            common.shape = vec![Dim::Variadic];
            continue;
        };
        if rank != next_rank {
            return Err(unlike());
        }
        let except = except(rank)?;
        for axis in (0..rank).filter(|&axis| Some(axis) != except) {
            common.shape[axis] = dims::same(common.shape[axis], next.shape[axis]).ok_or_else(unlike)?;
        }
    }
    Ok(common)
}

fn infer_concat(call: &Call<'_>) -> Result<Vec<Type>> {
    let interleave = call.bool("interleave")?;
    let except = |rank| match rank {
        0 => Ok(None),
        _ if interleave => Ok(None),
        rank => call.axis("axis", rank).map(Some),
    };
    let mut common = common(call, except)?;
    let count = call.count("values");
    let axis = match common.rank() {
        None => return Ok(vec![common.into()]),
        Some(0) => return Ok(dims::one(common.dtype, vec![Dim::from(count)])),
        Some(rank) => call.axis("axis", rank)?,
    };
    let mut total = Dim::Fixed(0);
    for i in 0..count {
        let size = if interleave { common.shape[axis] } else { call.ty_at("values", i)?.shape[axis] };
        total = match (total.size(), size.size()) {
            (Some(total), Some(size)) => dims::plus(total, size)?.into(),
            _ => Dim::Unknown,
        };
    }
    common.shape[axis] = total;
    Ok(vec![common.into()])
}

fn eval_concat(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let interleave = call.bool("interleave")?;
    let out = outputs.tensor(0)?;
    done_if!(out.shape().contains(&0));
    let axis =
        if call.tensor_at("values", 0)?.rank() == 0 { 0 } else { call.axis("axis", out.shape().len())? };
    let (length, inner) = (out.shape()[axis], out.shape()[axis + 1..].iter().product::<usize>());
    let bytes = out.bytes();
    let count = call.count("values");
    let mut start = 0;
    for i in 0..count {
        let value = call.tensor_at("values", i)?;
        let size = value.shape().get(axis).copied().unwrap_or(1);
        let outer = value.shape().iter().take(axis).product();
        let apart = if interleave { count * inner } else { inner };
        let copy = StridedCopy::new(0, start)
            .axis(outer, (size * inner).cast_signed(), (length * inner).cast_signed())
            .axis(size, inner.cast_signed(), apart.cast_signed())
            .axis(inner, 1, 1);
        copy.run(value.dtype(), value.bytes(), bytes);
        start += if interleave { inner } else { size * inner };
    }
    Ok(())
}

/// The new dimension that `stack` adds to tensors of the given rank.
fn stack_axis(call: &Call<'_>, rank: usize) -> Result<usize> {
    let given = call.int("axis")?;
    let outside = || op_error!("`axis` is {given}, outside a stack of tensors of rank {rank}");
    shape::axis(given, rank + 1).ok_or_else(outside)
}

fn infer_stack(call: &Call<'_>) -> Result<Vec<Type>> {
    let mut common = common(call, |_| Ok(None))?;
    if let Some(rank) = common.rank() {
        let axis = stack_axis(call, rank)?;
        common.shape.insert(axis, Dim::from(call.count("values")));
    }
    Ok(vec![common.into()])
}

fn eval_stack(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let out = outputs.tensor(0)?;
    done_if!(out.shape().contains(&0));
    let out = out.bytes();
    let count = call.count("values");
    for i in 0..count {
        let value = call.tensor_at("values", i)?;
        let (outer, inner) = value.shape().split_at(stack_axis(call, value.rank())?);
        let inner: usize = inner.iter().product();
        let copy = StridedCopy::new(0, i * inner)
            .axis(outer.iter().product(), inner.cast_signed(), (count * inner).cast_signed())
            .axis(inner, 1, 1);
        copy.run(value.dtype(), value.bytes(), out);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(op: &str, axis: i32, values: &[Tensor], interleave: bool) -> Result<Vec<Tensor>> {
        let mut args: Vec<_> = values.iter().map(|value| ("values", value.clone())).collect();
        args.push(("axis", Tensor::scalar(axis)));
        if interleave {
            args.push(("interleave", Tensor::from_bool(true)));
        }
        run(op, Ios15, &args)
    }

    fn tensor(shape: &[usize], first: i32) -> Tensor {
        let values: Vec<i32> = (first..).take(shape.iter().product()).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    #[test]
    fn concat_joins_or_interleaves() {
        let values = [tensor(&[2, 1], 1), tensor(&[2, 2], 3), tensor(&[2, 0], 0)];
        gives::<i32>(join("concat", -1, &values, false), &[2, 3], &[1, 3, 4, 2, 5, 6]);
        let values = [tensor(&[3, 2], 1), tensor(&[3, 2], 7)];
        let interleaved = [1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12];
        gives::<i32>(join("concat", 0, &values, true), &[6, 2], &interleaved);
        let scalars = [tensor(&[], 4), tensor(&[], 9)];
        assert_eq!(output::<i32>(join("concat", 0, &scalars, false)), [4, 9]);
    }

    #[test]
    fn stack_adds_a_dimension() {
        let values = [tensor(&[2, 2], 1), tensor(&[2, 2], 5)];
        for (axis, wanted) in [(0, [1, 2, 3, 4, 5, 6, 7, 8]), (-1, [1, 5, 2, 6, 3, 7, 4, 8])] {
            assert_eq!(output::<i32>(join("stack", axis, &values, false)), wanted);
        }
    }

    #[test]
    fn values_must_fit() {
        let values = [tensor(&[2, 1], 1), tensor(&[2, 2], 3)];
        let reason = "`values` 1 is tensor<int32, [2, 2]>, which does not fit tensor<int32, [2, 1]>";
        refused(join("concat", 0, &values, false), reason);
        assert!(join("concat", 1, &values, true).is_err());
        assert!(join("stack", 3, &[tensor(&[2], 1)], false).is_err());
    }
}
