//! Weight files (MIL blob storage, version 2): a 64-byte header, then per blob a 64-byte record and its data.

mod reader;
mod sample;
mod sink;
mod writer;

pub(super) use reader::BlobReader;
pub use reader::{BlobInfo, WeightFile, WeightFiles};
pub(super) use sink::{FileSink, Sink};
pub(super) use writer::BlobWriter;

/// The name of the one weight file that is written.
pub(super) const FILE: &str = "weight.bin";
/// What the names of weight files start with in a program.
pub(super) const PREFIX: &str = "@model_path/weights/";

/// Bytes of the header and of each record, and what both and the data are aligned to.
pub(super) const UNIT: usize = 64;
/// The only version of the format that programs use.
const VERSION: u32 = 2;
/// What each record starts with.
const SENTINEL: u32 = 0xDEAD_BEEF;

/// Bits of the last byte that `elements` of a type leave unused.
fn padding_bits(bits: u32, elements: usize) -> u64 {
    let used = (elements % 8) as u64 * u64::from(bits) % 8;
    (8 - used) % 8
}
