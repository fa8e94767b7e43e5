//! The Core ML package format in both directions, and compiled models in one, trusting nothing.
//!
//! [`Package::open`] reads `Manifest.json`, the protobuf model and the metadata of the weight file into a plain
//! [`Model`](crate::Model); [`write()`] does the reverse, atomically and deterministically. Weights stay
//! mapped and are neither read nor copied on the way in, and are streamed in chunks on the way out. Of a compiled model
//! (`.mlmodelc`) it reads the text of the program and the description, which give the same [`Model`](crate::Model).
//!
//! Reading takes at most 32 times the memory of `Manifest.json` and `model.mlmodel`, and by estimate at most 128 times that
//! of `model.mil`, whatever they contain: messages and text are decoded straight from the mapped bytes, and no count is
//! believed before the bytes behind it are there.

#[macro_use]
mod error;
mod check;
mod compiled;
mod contents;
mod decode;
mod digest;
mod encode;
mod files;
mod kind;
mod manifest;
mod pipeline;
mod read;
mod schema;
mod scope;
mod source;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod weights;
mod wire;
mod write;

pub use contents::{DS_STORE, foreign_file};
pub use decode::decode_model;
pub use encode::{EncodedModel, encode_model};
pub use error::{At, ErrorKind, PackageError};
pub use manifest::Manifest;
pub use pipeline::{Pipeline, Stage};
pub use read::{Form, Package};
pub use weights::{BlobInfo, FileSink, Sink, WeightFile, WeightFiles};
pub use write::{Summary, Watch, WriteOptions, write, write_watched};
