//! Every operation of the MIL opsets, one file per operation or tight family, one table.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Opset;
use super::op::OpDef;

mod activation;
mod attention;
mod axes;
mod band_part;
mod batch_space;
mod blocks;
mod broadcast;
mod cast;
mod channel_activation;
mod channels;
mod choice;
mod classify;
mod concat;
mod constexpr;
mod control_flow;
mod conv;
mod conv_transpose;
mod convolution;
mod crop;
mod crop_resize;
mod cumsum;
mod depth_space;
mod dims;
mod einsum;
mod elementwise_binary;
mod elementwise_unary;
mod fill;
mod gather;
mod identity;
mod in_place;
mod indexing;
mod linear;
mod list;
mod map;
mod non_maximum_suppression;
mod non_zero;
mod normalization;
mod one_hot;
mod pad;
mod pool;
mod quantization;
mod random;
mod range_1d;
mod recurrent;
mod reduction;
mod resample;
mod reshape;
mod resize;
mod reverse;
mod scatter;
mod select;
mod shape;
mod slice;
mod slice_bounds;
pub mod slice_update;
mod sliding_windows;
mod softmax;
mod sort;
mod split;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_calls;
mod tile;
mod transpose;
#[cfg(test)]
mod typed;
mod unit_dims;
pub mod views;
mod windows;

/// The tables of all families.
static FAMILIES: &[&[OpDef]] = &[
    activation::OPS,
    attention::OPS,
    band_part::OPS,
    batch_space::OPS,
    cast::OPS,
    channel_activation::OPS,
    classify::OPS,
    concat::OPS,
    constexpr::affine::OPS,
    constexpr::cast::OPS,
    constexpr::lut::OPS,
    constexpr::sparse::OPS,
    control_flow::OPS,
    conv::OPS,
    conv_transpose::OPS,
    crop::OPS,
    crop_resize::OPS,
    cumsum::OPS,
    depth_space::OPS,
    einsum::OPS,
    elementwise_binary::OPS,
    elementwise_unary::OPS,
    fill::OPS,
    gather::OPS,
    identity::OPS,
    linear::OPS,
    list::OPS,
    non_maximum_suppression::OPS,
    non_zero::OPS,
    normalization::OPS,
    one_hot::OPS,
    pad::OPS,
    pool::OPS,
    quantization::OPS,
    random::OPS,
    range_1d::OPS,
    recurrent::OPS,
    reduction::OPS,
    resample::OPS,
    reshape::OPS,
    resize::OPS,
    reverse::OPS,
    scatter::OPS,
    select::OPS,
    shape::OPS,
    slice::OPS,
    slice_update::OPS,
    sliding_windows::OPS,
    softmax::OPS,
    sort::OPS,
    split::OPS,
    state::OPS,
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
    static BY_NAME: LazyLock<HashMap<&str, Vec<&OpDef>>> = LazyLock::new(|| {
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        all().for_each(|def| by_name.entry(def.name).or_default().push(def));
        by_name
    });
    let versions = BY_NAME.get(name)?.iter().copied();
    versions.filter(|def| def.since <= opset).max_by_key(|def| def.since)
}
