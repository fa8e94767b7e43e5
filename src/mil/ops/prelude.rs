//! What almost every definition of an operation names.

pub(super) use half::f16;

pub(super) use super::{broadcast, dims};
pub(super) use crate::Opset::{self, *};
pub(super) use crate::op::domain::*;
pub(super) use crate::op::{
    ArgValue, Call, Decode, Decoders, Infer, Ints, Kernel, OpClass, OpDef, OpError, Outputs, Param, Result,
    Scratch, Weight, WeightAxes, constexpr, define, elements, executed, per_element, products,
};
pub(super) use crate::{Dim, TensorType, Type};
pub(super) use anemeter_kernels::tensor::{DType, Element, Shape, Tensor, TensorMut, TensorView, shape};

#[cfg(test)]
pub(super) use {super::testing::*, super::typed::*, crate::op::KnownValue, crate::op::Numerics};
