//! Every operation of the MIL opsets, one file per operation or tight family, one table.

use super::Opset;
use super::op::OpDef;

mod broadcast;
mod constexpr;
mod elementwise_binary;
mod softmax;
#[cfg(test)]
mod testing;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    constexpr::affine::OPS,
    constexpr::cast::OPS,
    constexpr::lut::OPS,
    constexpr::sparse::OPS,
    elementwise_binary::OPS,
    softmax::OPS,
];

/// Every definition.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().copied().flatten()
}

/// The definition of an operation that holds in an opset.
pub fn find(name: &str, opset: Opset) -> Option<&'static OpDef> {
    all().filter(|def| def.name == name && def.since <= opset).max_by_key(|def| def.since)
}
