//! What kind of work an operation is. Its cost, its place in memory and its predicted device follow from this.

use super::{Call, OpDef};
use crate::{Function, Operation, ops};
use anemeter_kernels::tensor::shape;

/// The kind of work of an operation. Every user of such a fact asks here, so that none keeps a list of names.
#[derive(Debug, Clone, Copy)]
pub enum OpClass {
    /// A constant of the package, plain or compressed.
    Constant,
    /// The elements of `x` in their order under another shape: nothing is read or written.
    View,
    /// Facts of a type, such as its shape: no element is read.
    Metadata,
    /// Hands the content of a state on in place.
    State,
    /// Runs nested blocks; their operations have the cost.
    Control,
    /// Moves or makes elements without floating point arithmetic.
    Movement,
    /// Moves the elements of `x` to other places, some of them perhaps to where they are.
    Transposition(FirstElement),
    /// Gives parts of `x` and reads no more than these.
    Slice(FirstElement),
    /// Gives the elements of `x` at indices known at run time, and reads no more than these.
    Lookup,
    /// Overwrites a part of `x` with `update` in place.
    Update,
    /// One FLOP per element of a floating point result.
    Elementwise,
    /// Combines several elements into each of its results.
    Reduction(Flops),
    /// Sums of products: convolutions, matrix products, attention.
    Product(Flops),
}

/// FLOPs of a call, given the shape of its first result; nothing where a shape is unknown.
pub type Flops = fn(&Call<'_>, &[usize]) -> Option<u64>;

/// The first element of `x` that a call gives, if its result is elements of `x` one after the other.
pub type FirstElement = fn(&Call<'_>) -> Option<usize>;

/// FLOPs per element of a softmax: maximum, difference, exponential, sum, division.
pub const SOFTMAX_FLOPS: u64 = 5;
/// FLOPs per element of a norm: mean, difference, square, mean, root and division, scale, shift.
pub const NORM_FLOPS: u64 = 8;

impl Function {
    /// What kind of work an operation of it is; nothing where there is no definition of its type.
    pub fn class_of(&self, operation: &Operation) -> Option<OpClass> {
        ops::find_or_later(&operation.kind, self.opset).map(|def| def.class)
    }
}

impl OpDef {
    /// The first element of `x` that a call gives, if its result is elements of `x` one after the other.
    ///
    /// `infer` must have accepted the call, and the shape of `x` must be known.
    pub fn first_element(&self, call: &Call<'_>) -> Option<usize> {
        match self.class {
            OpClass::View => Some(0),
            OpClass::Transposition(first) | OpClass::Slice(first) => first(call),
            _ => None,
        }
    }
}

/// `N` FLOPs per element of `x`.
pub fn per_element<const N: u64>(call: &Call<'_>, _: &[usize]) -> Option<u64> {
    Some(elements(&call.ty("x").ok()?.concrete()?).saturating_mul(N))
}

/// Multiplications and as many additions, and an addition per result where the call has a bias.
pub fn products(call: &Call<'_>, out: &[usize], multiplications: u64) -> u64 {
    let bias = if call.has("bias") { elements(out) } else { 0 };
    multiplications.saturating_mul(2).saturating_add(bias)
}

/// Elements of a shape.
pub fn elements(dims: &[usize]) -> u64 {
    shape::element_count(dims).map_or(u64::MAX, |n| n as u64)
}
