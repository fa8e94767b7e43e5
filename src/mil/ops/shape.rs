//! `shape`: the dimensions of a tensor as a vector.

use super::dims;
use crate::mil::op::domain::FLOAT_INT_BOOL;
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, Type};
use crate::tensor::{DType, Shape};

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "shape",
    since: Opset::Ios15,
    params: &[Param::value("x", FLOAT_INT_BOOL)],
    infer,
    eval: Eval::Kernel(eval),
}];

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let rank = call.ty("x")?.rank().map_or(Dim::Unknown, Dim::from);
    Ok(dims::one(DType::I32, vec![rank]))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let shape = match call.known("x") {
        Some(x) => Shape::from_slice(x.shape()),
        None => call.ty("x")?.concrete().ok_or_else(|| OpError::new("the shape of `x` is not known"))?,
    };
    let out = outputs.resize(0, &[shape.len()])?;
    for (out, size) in out.slice::<i32>()?.iter_mut().zip(shape) {
        *out = i32::try_from(size)
            .map_err(|_| OpError::new(format!("a dimension of {size} does not fit int32")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn is_a_vector_of_int32() {
        let x = Tensor::from_bools(&[2, 0, 5], &[]).unwrap();
        let out = run("shape", Opset::Ios15, &[("x", x)]).unwrap();
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [2, 0, 5]);
        let out = run("shape", Opset::Ios15, &[("x", Tensor::scalar(1.0f32))]).unwrap();
        assert_eq!(out[0].shape(), [0]);
    }
}
