//! `sliding_windows`: the windows of a dimension, stacked along a new one.

use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Movement, "sliding_windows", Ios15, infer, eval).takes(&params(FLOAT_INT)),
    define(OpClass::Movement, "sliding_windows", Ios17, infer, eval).takes(&params(MOVABLE_17)),
];

const fn params(x: &'static [DType]) -> [Param; 4] {
    [
        Param::value("x", x),
        Param::constant("axis", INT),
        Param::constant("size", INT),
        Param::constant("stride", INT).or_int(1),
    ]
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let size = dims::positive("size", call.int("size")?)?;
    let stride = dims::positive("stride", call.int("stride")?)?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let axis = call.axis("axis", rank)?;
    let mut dims = x.shape.clone();
    dims[axis] = dims::map(dims[axis], |len| {
        let rest = len.checked_sub(size);
        let rest = rest.ok_or_else(|| op_error!("`size` is {size}, dimension {axis} has {len}"));
        Ok(rest? / stride + 1)
    })?;
    dims.insert(axis + 1, Dim::from(size));
    Ok(dims::one(x.dtype, dims))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.rank())?;
    let stride = dims::positive("stride", call.int("stride")?)?;
    let out = outputs.tensor(0)?;
    done_if!(out.shape().contains(&0));
    let mut from = shape::strides(x.shape());
    from.insert(axis, from[axis].saturating_mul(stride));
    let mut copy = StridedCopy::new(0, 0);
    for ((&len, from), to) in out.shape().iter().zip(from).zip(shape::strides(out.shape())) {
        copy.push(len, from.cast_signed(), to.cast_signed());
    }
    copy.run(x.dtype(), x.bytes(), out.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(size: i32, stride: i32) -> Result<Vec<Tensor>> {
        let x = tensor(&[1, 5, 2], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let args = [("axis", -2), ("size", size), ("stride", stride)].map(|(n, v)| (n, Tensor::scalar(v)));
        run("sliding_windows", Ios15, &[&[("x", x)][..], &args].concat())
    }

    #[test]
    fn windows_may_overlap_and_leave_a_rest() {
        let out = windows(3, 1).unwrap();
        assert_eq!(out[0].shape(), [1, 3, 3, 2]);
        assert_eq!(out[0].view().slice::<i32>().unwrap()[6..12], [2, 3, 4, 5, 6, 7]);
        gives::<i32>(windows(2, 2), &[1, 2, 2, 2], &[0, 1, 2, 3, 4, 5, 6, 7]);
        refused(windows(6, 1), "`size` is 6, dimension 1 has 5");
    }
}
