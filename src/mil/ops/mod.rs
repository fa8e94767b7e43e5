//! Every operation of the MIL opsets, one file per operation or tight family, one table.

use super::Opset;
use super::op::OpDef;

mod batch_space;
mod broadcast;
mod depth_space;
mod dims;
mod elementwise_binary;
mod reshape;
mod reverse;
mod sliding_windows;
mod softmax;
#[cfg(test)]
mod testing;
mod transpose;
mod unit_dims;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    batch_space::OPS,
    depth_space::OPS,
    elementwise_binary::OPS,
    reshape::OPS,
    reverse::OPS,
    sliding_windows::OPS,
    softmax::OPS,
    transpose::OPS,
    unit_dims::OPS,
];

/// Every definition.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().copied().flatten()
}

/// The definition of an operation that holds in an opset.
pub fn find(name: &str, opset: Opset) -> Option<&'static OpDef> {
    all().filter(|def| def.name == name && def.since <= opset).max_by_key(|def| def.since)
}
