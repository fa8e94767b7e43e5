//! Floating point operations of one operation, as its [`OpClass`] counts them: a product of an M x K by a K x N matrix
//! has 2 M N K.

use crate::TensorType;
use crate::op::{Call, OpClass, elements};

/// FLOPs of a call that gives `out` first; 0 for those that only move data, and where a shape is unknown.
pub(super) fn of(class: OpClass, call: &Call<'_>, out: Option<&TensorType>) -> u64 {
    let Some((out, dims)) = out.and_then(|ty| Some((ty, ty.concrete()?))) else { return 0 };
    match class {
        OpClass::Product(flops) | OpClass::Reduction(flops) => flops(call, &dims).unwrap_or(0),
        OpClass::Elementwise if out.dtype.is_float() => elements(&dims),
        OpClass::Elementwise
        | OpClass::Constant
        | OpClass::View
        | OpClass::Metadata
        | OpClass::State
        | OpClass::Control
        | OpClass::Movement
        | OpClass::Transposition(_)
        | OpClass::Slice(_)
        | OpClass::Lookup
        | OpClass::Update => 0,
    }
}
