//! Every operation of the MIL opsets, one file per operation or tight family, one table.

use super::Opset;
use super::op::OpDef;

mod broadcast;
mod choice;
mod crop;
mod crop_resize;
mod elementwise_binary;
mod gather;
mod indexing;
mod resample;
mod resize;
mod scatter;
mod softmax;
#[cfg(test)]
mod testing;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    crop::OPS,
    crop_resize::OPS,
    elementwise_binary::OPS,
    gather::OPS,
    resample::OPS,
    resize::OPS,
    scatter::OPS,
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
