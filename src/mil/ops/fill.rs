//! `fill` and `fill_like`: one value everywhere.

use super::dims;
use crate::kernels::copy;
use crate::mil::op::domain::{FLOAT_INT_BOOL, INT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, Type};
use crate::tensor::DType;

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "fill",
        since: Opset::Ios15,
        params: &[Param::value("shape", INT), Param::constant("value", FLOAT_INT_BOOL).or_float(0.0)],
        infer: infer_fill,
        eval: Eval::Kernel(eval),
    },
    OpDef {
        name: "fill_like",
        since: Opset::Ios16,
        params: &[
            Param::value("ref_tensor", FLOAT_INT_BOOL),
            Param::constant("value", FLOAT_INT_BOOL).or_float(0.0),
        ],
        infer: infer_like,
        eval: Eval::Kernel(eval),
    },
];

fn dtype(call: &Call<'_>) -> Result<DType, OpError> {
    Ok(call.opt_ty("value")?.map_or(DType::F32, |value| value.dtype))
}

fn infer_fill(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let length = dims::of_rank("shape", call.ty("shape")?, 1)?[0].size();
    let dims = match (call.known_ints("shape")?, length) {
        (Some(shape), _) => {
            let sizes = shape.iter().map(|&size| dims::size("shape", size).map(Dim::from));
            sizes.collect::<Result<_, _>>()?
        }
        (None, Some(length)) => vec![Dim::Unknown; length],
        (None, None) => vec![Dim::Variadic],
    };
    Ok(dims::one(dtype(call)?, dims))
}

fn infer_like(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    Ok(dims::one(dtype(call)?, call.ty("ref_tensor")?.shape.clone()))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let out = outputs.tensor(0)?.bytes();
    match call.opt_tensor("value")? {
        None => out.fill(0),
        Some(value) if value.len() == 1 => copy::fill(out, value.bytes()),
        Some(value) => return Err(OpError::new(format!("`value` holds {} elements, not one", value.len()))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn fills_with_the_value_or_with_fp32_zero() {
        let shape = Tensor::from_slice(&[2], &[2, 1]).unwrap();
        let out =
            run("fill", Opset::Ios15, &[("shape", shape.clone()), ("value", Tensor::scalar(7))]).unwrap();
        assert_eq!((out[0].shape(), out[0].view().slice::<i32>().unwrap()), (&[2, 1][..], &[7, 7][..]));
        let out = run("fill_like", Opset::Ios16, &[("ref_tensor", shape)]).unwrap();
        assert_eq!(out[0].view().slice::<f32>().unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn sizes_are_not_negative() {
        let shape = Tensor::from_slice(&[2], &[2, -1]).unwrap();
        let error = run("fill", Opset::Ios15, &[("shape", shape)]).unwrap_err();
        assert_eq!(error.to_string(), "`shape` is -1, which is not a size");
    }
}
