//! `sliding_windows`: the windows of a dimension, stacked along a new one.

use super::dims;
use crate::kernels::copy::StridedCopy;
use crate::mil::op::domain::{FLOAT_INT, INT, MOVABLE_17};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, Type};
use crate::tensor::{DType, shape};

pub(super) const OPS: &[OpDef] =
    &[generation(Opset::Ios15, &params(FLOAT_INT)), generation(Opset::Ios17, &params(MOVABLE_17))];

const fn generation(since: Opset, params: &'static [Param]) -> OpDef {
    OpDef { name: "sliding_windows", since, params, infer, eval: Eval::Kernel(eval) }
}

const fn params(x: &'static [DType]) -> [Param; 4] {
    [
        Param::value("x", x),
        Param::constant("axis", INT),
        Param::constant("size", INT),
        Param::constant("stride", INT).or_int(1),
    ]
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    let size = dims::positive("size", call.int("size")?)?;
    let stride = dims::positive("stride", call.int("stride")?)?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let axis = call.axis("axis", rank)?;
    let mut dims = x.shape.clone();
    dims[axis] = dims::map(dims[axis], |len| {
        let rest = len.checked_sub(size);
        let rest = rest.ok_or_else(|| OpError::new(format!("`size` is {size}, dimension {axis} has {len}")));
        Ok(rest? / stride + 1)
    })?;
    dims.insert(axis + 1, Dim::from(size));
    Ok(dims::one(x.dtype, dims))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.rank())?;
    let stride = dims::positive("stride", call.int("stride")?)?;
    let out = outputs.tensor(0)?;
    if out.shape().contains(&0) {
        return Ok(());
    }
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
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    fn windows(size: i32, stride: i32) -> Result<Tensor, OpError> {
        let x = Tensor::from_slice(&[1, 5, 2], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        let args = [("axis", -2), ("size", size), ("stride", stride)].map(|(n, v)| (n, Tensor::scalar(v)));
        let args = [&[("x", x)][..], &args].concat();
        run("sliding_windows", Opset::Ios15, &args).map(|mut out| out.remove(0))
    }

    #[test]
    fn windows_may_overlap_and_leave_a_rest() {
        let out = windows(3, 1).unwrap();
        assert_eq!(out.shape(), [1, 3, 3, 2]);
        assert_eq!(out.view().slice::<i32>().unwrap()[6..12], [2, 3, 4, 5, 6, 7]);
        let out = windows(2, 2).unwrap();
        assert_eq!(out.shape(), [1, 2, 2, 2]);
        assert_eq!(out.view().slice::<i32>().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(windows(6, 1).unwrap_err().to_string(), "`size` is 6, dimension 1 has 5");
    }
}
