//! `.aimodel`: a folder of a program with its weights (`main.mlirb`), its SHA-256 (`main.hash`) and `metadata.json`.

mod metadata;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use metadata::AssetMetadata;
pub use read::Asset;
pub use write::{Summary, write, write_watched};

/// The program and its weights.
const PROGRAM: &str = "main.mlirb";
/// The SHA-256 of [`PROGRAM`], as it is.
const HASH: &str = "main.hash";
/// What people say about the model.
const METADATA: &str = "metadata.json";
