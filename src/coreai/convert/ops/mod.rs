//! Every MIL operation that has an aicode form, one file per family, one table.

mod activation;
mod attention;
mod cast;
mod compressed;
mod convolution;
mod elementwise;
mod gather;
mod joining;
mod normalization;
mod order;
mod pool;
mod product;
mod reduction;
mod select;
mod shape;
mod slice;
mod softmax;
mod state;

use super::emit::Emit;
use super::error::Result;
use crate::program::ValueId;

/// Extends a region by what an operation does, and gives its results.
pub(super) type Emitter = fn(&mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>>;

/// Families of operations.
static FAMILIES: &[&[(&str, Emitter)]] = &[
    activation::OPS,
    attention::OPS,
    cast::OPS,
    compressed::OPS,
    convolution::OPS,
    elementwise::OPS,
    gather::OPS,
    joining::OPS,
    normalization::OPS,
    order::OPS,
    pool::OPS,
    product::OPS,
    reduction::OPS,
    select::OPS,
    shape::OPS,
    slice::OPS,
    softmax::OPS,
    state::OPS,
];

/// What an operation that is not in the table is refused with; its kind follows.
pub(super) const UNSUPPORTED: &str = "has no form in aicode: ";

/// How an operation is emitted.
pub(super) fn find(kind: &str) -> Option<Emitter> {
    let mut entries = FAMILIES.iter().flat_map(|family| family.iter());
    entries.find(|(name, _)| *name == kind).map(|&(_, emitter)| emitter)
}

/// The MIL operations that have an aicode form.
pub fn supported() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.iter().map(|&(name, _)| name))
}
