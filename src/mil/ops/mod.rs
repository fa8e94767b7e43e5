//! Every operation of the MIL opsets, one file per operation or tight family, one table.

use super::Opset;
use super::op::OpDef;

mod attention;
mod broadcast;
mod conv;
mod conv_transpose;
mod convolution;
mod einsum;
mod elementwise_binary;
mod linear;
mod pool;
mod softmax;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_calls;
mod windows;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    attention::OPS,
    conv::OPS,
    conv_transpose::OPS,
    einsum::OPS,
    elementwise_binary::OPS,
    linear::OPS,
    pool::OPS,
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
