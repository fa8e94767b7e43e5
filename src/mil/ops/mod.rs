//! Every operation of the MIL opsets, one file per operation or tight family, one table.

use super::Opset;
use super::op::OpDef;

mod activation;
mod axes;
mod broadcast;
mod cast;
mod channel_activation;
mod channels;
mod elementwise_binary;
mod elementwise_unary;
mod erf;
mod identity;
mod in_place;
mod map;
mod normalization;
mod random;
mod reduction;
mod select;
mod attention;
mod broadcast;
mod conv;
mod conv_transpose;
mod convolution;
mod einsum;
mod elementwise_binary;
mod linear;
mod pool;
mod batch_space;
mod broadcast;
mod concat;
mod depth_space;
mod dims;
mod elementwise_binary;
mod pad;
mod reshape;
mod reverse;
mod slice;
mod slice_bounds;
mod slice_update;
mod sliding_windows;
mod choice;
mod elementwise_binary;
mod gather;
mod indexing;
mod scatter;
mod softmax;
mod split;
#[cfg(test)]
mod testing;
mod windows;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    activation::OPS,
    cast::OPS,
    channel_activation::OPS,
    elementwise_binary::OPS,
    elementwise_unary::OPS,
    identity::OPS,
    normalization::OPS,
    random::OPS,
    reduction::OPS,
    select::OPS,
    attention::OPS,
    conv::OPS,
    conv_transpose::OPS,
    einsum::OPS,
    elementwise_binary::OPS,
    linear::OPS,
    pool::OPS,
    softmax::OPS,
mod tile;
mod transpose;
mod unit_dims;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    batch_space::OPS,
    concat::OPS,
    depth_space::OPS,
    elementwise_binary::OPS,
    pad::OPS,
    reshape::OPS,
    reverse::OPS,
    slice::OPS,
    slice_update::OPS,
    sliding_windows::OPS,
    softmax::OPS,
    split::OPS,
    tile::OPS,
    transpose::OPS,
    unit_dims::OPS,
];
static FAMILIES: &[&[OpDef]] = &[elementwise_binary::OPS, gather::OPS, scatter::OPS, softmax::OPS];
mod blocks;
mod broadcast;
mod classify;
mod constexpr;
mod control_flow;
mod elementwise_binary;
mod list;
mod quantization;
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
