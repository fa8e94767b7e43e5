//! Weight files (MIL blob storage, version 2): a header, then per blob a record and its data. All integers are little
//! endian.
//!
//! ```text
//!       0  header   u32 blobs | u32 version = 2 | 56 bytes 0
//!      64  record   u32 0xDEADBEEF | u32 data type | u64 bytes | u64 offset of the data | u64 padding bits | 32 bytes 0
//!     128  data     elements narrower than a byte are packed, the first in the low bits
//!          gap      zeros up to a multiple of 64
//!          record   ...
//! ```
//!
//! A program names a blob by the file and the offset of its record. The format is that of coremltools, in
//! `mlmodel/src/MILBlob/Blob/StorageFormat.hpp`.

mod finite;
mod reader;
mod sample;
mod sink;
mod writer;

pub(super) use reader::BlobReader;
pub use reader::{BlobInfo, WeightFile, WeightFiles};
pub use sink::{FileSink, Sink};
pub(super) use writer::BlobWriter;

/// The name of the one weight file that is written.
pub(super) const FILE: &str = "weight.bin";
/// What the names of weight files start with in a program.
pub(super) const PREFIX: &str = "@model_path/weights/";

/// Bytes of the header and of each record, and what the format aligns both and the data to.
pub(super) const UNIT: usize = 64;
/// The only version of the format that programs use.
const VERSION: u32 = 2;
/// What each record starts with, so that a wrong offset is noticed.
const SENTINEL: u32 = 0xDEAD_BEEF;

/// Bits of the last byte that `elements` of a type leave unused.
fn padding_bits(bits: u32, elements: usize) -> u64 {
    let used = (elements % 8) as u64 * u64::from(bits) % 8;
    (8 - used) % 8
}
