//! MLIR bytecode, version 6, with the dialect `aicode`: what `main.mlirb` is.
//!
//! ```text
//! "ML\xefR" 6 "MLIR22.0.0git\0"  Dialect AttrTypeOffset AttrType IR ResourceOffset Resource String Properties
//! ```
//!
//! A section is its id, its length and its data. Attributes, types, strings, names of operations, properties and
//! resources are numbered, each in its own table, and are referred to by number.

mod decode;
mod encode;
mod kinds;
mod properties;
mod varint;

pub use decode::{Decoded, decode};
pub use encode::{Encoded, ResourceEntry, encode};

/// The names of an operation's properties, in their order, and whether each may be missing.
pub(crate) fn property_names(op: &str) -> &'static [(&'static str, bool)] {
    properties::of(op)
}

/// The scalars and their numbers.
#[cfg(test)]
pub(crate) fn scalars() -> &'static [(crate::Scalar, u64)] {
    kinds::SCALARS
}

/// The first bytes of a file.
const MAGIC: &[u8; 4] = b"ML\xefR";
/// The version of the format.
const VERSION: u64 = 6;
/// What wrote it: the version of MLIR that Apple's tools contain, since they are what reads it.
const PRODUCER: &str = "MLIR22.0.0git";
/// The only dialect.
const DIALECT: &str = "aicode";
/// The version of its encoding.
const DIALECT_VERSION: u64 = 2;
/// What fills the space before aligned data.
const PADDING: u8 = 0xCB;
/// What the data of resources is aligned to. Apple's reader of summaries holds the file at such an address, and refuses
/// larger alignments.
const ALIGNMENT: u64 = 16;
/// In the id of a section: an alignment follows its length.
const ALIGNED: u8 = 0x80;

/// The operation that holds the graphs.
const ASSET: &str = "serialization.asset";
/// The operation that is a graph.
const GRAPH: &str = "dataflow.graph_v1";
/// The attribute that names an argument or a result of a graph.
const PORT_NAME: &str = "aicode.name";

/// Ids of sections.
mod section {
    pub(super) const STRING: u8 = 0;
    pub(super) const DIALECT: u8 = 1;
    pub(super) const ATTR_TYPE: u8 = 2;
    pub(super) const ATTR_TYPE_OFFSET: u8 = 3;
    pub(super) const IR: u8 = 4;
    pub(super) const RESOURCE: u8 = 5;
    pub(super) const RESOURCE_OFFSET: u8 = 6;
    pub(super) const DIALECT_VERSIONS: u8 = 7;
    pub(super) const PROPERTIES: u8 = 8;
}

/// Which parts the record of an operation has.
mod mask {
    pub(super) const ATTRIBUTES: u8 = 1;
    pub(super) const RESULTS: u8 = 2;
    pub(super) const OPERANDS: u8 = 4;
    pub(super) const SUCCESSORS: u8 = 8;
    pub(super) const REGIONS: u8 = 16;
    pub(super) const USE_LIST: u8 = 32;
    pub(super) const PROPERTIES: u8 = 64;
}
