//! Every operation of the MIL opsets, one file per operation or tight family, one table.

use super::Opset;
use super::op::OpDef;

mod blocks;
mod broadcast;
mod classify;
mod constexpr;
mod control_flow;
mod elementwise_binary;
mod list;
mod quantization;
mod recurrent;
mod softmax;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod typed;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    classify::OPS,
    constexpr::affine::OPS,
    constexpr::cast::OPS,
    constexpr::lut::OPS,
    constexpr::sparse::OPS,
    control_flow::OPS,
    elementwise_binary::OPS,
    list::OPS,
    quantization::OPS,
    recurrent::OPS,
    softmax::OPS,
    state::OPS,
];

/// Every definition.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().copied().flatten()
}

/// The definition of an operation that holds in an opset.
pub fn find(name: &str, opset: Opset) -> Option<&'static OpDef> {
    all().filter(|def| def.name == name && def.since <= opset).max_by_key(|def| def.since)
}
