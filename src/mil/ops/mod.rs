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
pub mod classify;
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
mod prelude;
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
pub mod slice;
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
mod windows;

/// The tables of families, each by the name of its file.
macro_rules! families {
    ($($family:ident$(/$file:ident)?)*) => {
        &[$((concat!(stringify!($family) $(, "/", stringify!($file))?), $family$(::$file)?::OPS)),*]
    };
}

static FAMILIES: &[(&str, &[OpDef])] = families! {
    activation attention band_part batch_space cast channel_activation classify concat
    constexpr/affine constexpr/cast constexpr/lut constexpr/sparse control_flow conv conv_transpose
    crop crop_resize cumsum depth_space einsum elementwise_binary elementwise_unary fill gather
    identity linear list non_maximum_suppression non_zero normalization one_hot pad pool
    quantization random range_1d recurrent reduction resample reshape resize reverse scatter select
    shape slice slice_update sliding_windows softmax sort split state tile transpose unit_dims
};

/// Every definition with the name of its family.
pub fn by_family() -> impl Iterator<Item = (&'static str, &'static OpDef)> {
    FAMILIES.iter().flat_map(|(family, defs)| defs.iter().map(move |def| (*family, def)))
}

/// Every definition of every operation and opset.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    by_family().map(|(_, def)| def)
}

/// The definition of an operation that holds in an opset.
pub fn find(name: &str, opset: Opset) -> Option<&'static OpDef> {
    find_or_later(name, opset).filter(|def| def.since <= opset)
}

/// The definition of an operation that holds in an opset, or else that of the first opset that has it.
pub fn find_or_later(name: &str, opset: Opset) -> Option<&'static OpDef> {
    static BY_NAME: LazyLock<HashMap<&str, Vec<&OpDef>>> = LazyLock::new(|| {
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        all().for_each(|def| by_name.entry(def.name).or_default().push(def));
        by_name
    });
    let versions = BY_NAME.get(name)?;
    let held = versions.iter().filter(|def| def.since <= opset).max_by_key(|def| def.since);
    held.or_else(|| versions.iter().min_by_key(|def| def.since)).copied()
}
