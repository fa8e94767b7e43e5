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
mod tile;
mod transpose;
#[cfg(test)]
mod typed;
mod unit_dims;
pub mod views;
mod windows;

/// The tables of all families, each by the name of its file.
static FAMILIES: &[(&str, &[OpDef])] = &[
    ("activation", activation::OPS),
    ("attention", attention::OPS),
    ("band_part", band_part::OPS),
    ("batch_space", batch_space::OPS),
    ("cast", cast::OPS),
    ("channel_activation", channel_activation::OPS),
    ("classify", classify::OPS),
    ("concat", concat::OPS),
    ("constexpr/affine", constexpr::affine::OPS),
    ("constexpr/cast", constexpr::cast::OPS),
    ("constexpr/lut", constexpr::lut::OPS),
    ("constexpr/sparse", constexpr::sparse::OPS),
    ("control_flow", control_flow::OPS),
    ("conv", conv::OPS),
    ("conv_transpose", conv_transpose::OPS),
    ("crop", crop::OPS),
    ("crop_resize", crop_resize::OPS),
    ("cumsum", cumsum::OPS),
    ("depth_space", depth_space::OPS),
    ("einsum", einsum::OPS),
    ("elementwise_binary", elementwise_binary::OPS),
    ("elementwise_unary", elementwise_unary::OPS),
    ("fill", fill::OPS),
    ("gather", gather::OPS),
    ("identity", identity::OPS),
    ("linear", linear::OPS),
    ("list", list::OPS),
    ("non_maximum_suppression", non_maximum_suppression::OPS),
    ("non_zero", non_zero::OPS),
    ("normalization", normalization::OPS),
    ("one_hot", one_hot::OPS),
    ("pad", pad::OPS),
    ("pool", pool::OPS),
    ("quantization", quantization::OPS),
    ("random", random::OPS),
    ("range_1d", range_1d::OPS),
    ("recurrent", recurrent::OPS),
    ("reduction", reduction::OPS),
    ("resample", resample::OPS),
    ("reshape", reshape::OPS),
    ("resize", resize::OPS),
    ("reverse", reverse::OPS),
    ("scatter", scatter::OPS),
    ("select", select::OPS),
    ("shape", shape::OPS),
    ("slice", slice::OPS),
    ("slice_update", slice_update::OPS),
    ("sliding_windows", sliding_windows::OPS),
    ("softmax", softmax::OPS),
    ("sort", sort::OPS),
    ("split", split::OPS),
    ("state", state::OPS),
    ("tile", tile::OPS),
    ("transpose", transpose::OPS),
    ("unit_dims", unit_dims::OPS),
];

/// Every definition with the name of its family.
pub fn by_family() -> impl Iterator<Item = (&'static str, &'static OpDef)> {
    FAMILIES.iter().flat_map(|(family, defs)| defs.iter().map(move |def| (*family, def)))
}

/// Every definition.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    by_family().map(|(_, def)| def)
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
