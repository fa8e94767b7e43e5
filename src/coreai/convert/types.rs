//! MIL types as aicode types.

use super::body;
use super::error::{Result, refuse};
use crate::program::{Scalar, Type};
use anemeter_kernels::tensor::DType;
use anemeter_mil::TensorType;

/// An element type.
pub(super) fn element(dtype: DType) -> Result<Scalar> {
    Ok(match dtype {
        DType::Bool => Scalar::Bool,
        DType::F16 => Scalar::F16,
        DType::F32 => Scalar::F32,
        DType::F64 => Scalar::F64,
        DType::BF16 => Scalar::Bf16,
        DType::F8E4M3FN => Scalar::F8E4M3Fn,
        DType::F8E5M2 => Scalar::F8E5M2,
        DType::I4 => Scalar::I4,
        DType::I8 => Scalar::I8,
        DType::I16 => Scalar::I16,
        DType::I32 => Scalar::I32,
        DType::I64 => Scalar::I64,
        DType::U1 => Scalar::U1,
        DType::U2 => Scalar::U2,
        DType::U3 => Scalar::U3,
        DType::U4 => Scalar::U4,
        DType::U6 => Scalar::U6,
        DType::U8 => Scalar::U8,
        DType::U16 => Scalar::U16,
        DType::U32 => Scalar::U32,
        DType::U64 => Scalar::U64,
        DType::String => refuse!("strings are no elements of Core AI tensors"),
    })
}

/// The sizes of a tensor, all of which must be known.
pub(super) fn dims(ty: &TensorType) -> Result<Vec<u64>> {
    match ty.concrete() {
        Some(shape) => Ok(shape.iter().map(|&size| size as u64).collect()),
        None => refuse!(
            "a {ty} has sizes that are unknown until the program runs; only enumerated shapes become functions"
        ),
    }
}

/// A tensor type.
pub(super) fn tensor(ty: &TensorType) -> Result<Type> {
    Ok(body::tensor(element(ty.dtype)?, &dims(ty)?))
}
