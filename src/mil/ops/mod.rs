//! Every operation of the MIL opsets, one file per operation or tight family, one table.

use super::Opset;
use super::op::OpDef;

mod band_part;
mod batch_space;
mod broadcast;
mod concat;
mod cumsum;
mod depth_space;
mod dims;
mod elementwise_binary;
mod fill;
mod non_maximum_suppression;
mod non_zero;
mod one_hot;
mod pad;
mod range_1d;
mod reshape;
mod reverse;
mod shape;
mod slice;
mod slice_bounds;
mod slice_update;
mod sliding_windows;
mod softmax;
mod sort;
mod split;
#[cfg(test)]
mod testing;
mod tile;
mod transpose;
mod unit_dims;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    band_part::OPS,
    batch_space::OPS,
    concat::OPS,
    cumsum::OPS,
    depth_space::OPS,
    elementwise_binary::OPS,
    fill::OPS,
    non_maximum_suppression::OPS,
    non_zero::OPS,
    one_hot::OPS,
    pad::OPS,
    range_1d::OPS,
    reshape::OPS,
    reverse::OPS,
    shape::OPS,
    slice::OPS,
    slice_update::OPS,
    sliding_windows::OPS,
    softmax::OPS,
    sort::OPS,
    split::OPS,
    tile::OPS,
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
