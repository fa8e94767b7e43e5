//! Tensors in files, for predictions: safetensors, and the `.npy` and `.npz` files of numpy.
//!
//! One file and one line in [`FORMATS`] per format.

mod declared;
mod npy;
mod npz;
mod safetensors;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::atomic;
use anemeter_base::files;
use anemeter_base::text::visible;
use anemeter_convert::bundle::digest_text;
use anemeter_kernels::tensor::{Bytes, Tensor, TensorView};

pub use declared::{NamedTensor, as_declared};

/// What a file holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// One tensor without a name.
    Unnamed(Tensor),
    /// Tensors by name.
    Named(BTreeMap<String, Tensor>),
}

/// A file of named tensors, as it was read.
#[derive(Debug, Clone)]
pub struct NamedTensors {
    /// Its tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// The digest of its content, such as `xxh3:00…`.
    pub digest: String,
}

/// Tensors to be written.
pub struct Document<'a> {
    /// The tensors by name.
    pub tensors: BTreeMap<String, TensorView<'a>>,
    /// Texts beside them, for formats that hold some.
    pub texts: Option<HashMap<String, String>>,
}

/// A kind of file.
#[derive(Debug)]
pub struct Format {
    /// What its files end with.
    pub ending: &'static str,
    /// Whether it holds texts beside tensors.
    pub holds_texts: bool,
    decode: fn(&[u8]) -> Result<Content>,
    encode: fn(&Document<'_>) -> Result<Vec<u8>>,
}

/// Every format. A file of another ending is taken for the first.
pub const FORMATS: &[Format] = &[safetensors::FORMAT, npy::FORMAT, npz::FORMAT];

/// What is wrong with the bytes of a file, or with tensors for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    message: String,
    help: Option<&'static str>,
}

type Result<T> = std::result::Result<T, FormatError>;

impl FormatError {
    fn new(message: impl Into<String>) -> FormatError {
        FormatError { message: message.into(), help: None }
    }

    fn with_help(self, help: &'static str) -> FormatError {
        FormatError { help: Some(help), ..self }
    }

    /// Says which tensor it is about.
    fn about(self, name: &str) -> FormatError {
        FormatError { message: format!("`{name}`: {}", self.message), ..self }
    }
}

impl std::error::Error for FormatError {}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible(&self.message))
    }
}

/// A file of tensors that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct TensorFileError {
    path: PathBuf,
    problem: FormatError,
}

impl Advice for TensorFileError {
    fn remedy(&self) -> Option<Remedy> {
        self.problem.help.map(Remedy::from)
    }
}

impl Format {
    /// The format of a file, by its ending.
    pub fn of(path: &Path) -> &'static Format {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let found = FORMATS.iter().find(|format| format.ending.eq_ignore_ascii_case(ending));
        found.unwrap_or(&FORMATS[0])
    }

    /// Reads the bytes of a file.
    pub fn decode(&self, bytes: &[u8]) -> Result<Content> {
        (self.decode)(bytes)
    }

    /// The bytes of a file. Texts are left out if the format holds none.
    pub fn encode(&self, document: &Document<'_>) -> Result<Vec<u8>> {
        (self.encode)(document)
    }
}

/// Reads a file in the format that its ending names.
pub fn read(path: &Path) -> std::result::Result<Content, TensorFileError> {
    let decoded = Format::of(path).decode(&map(path)?);
    decoded.map_err(|problem| TensorFileError { path: path.to_owned(), problem })
}

/// Reads a file whose tensors have names.
pub fn read_named(path: &Path) -> std::result::Result<NamedTensors, TensorFileError> {
    let at = |problem| TensorFileError { path: path.to_owned(), problem };
    let bytes = map(path)?;
    match Format::of(path).decode(&bytes).map_err(at)? {
        Content::Named(tensors) => Ok(NamedTensors { tensors, digest: digest_text(xxh3_128(&bytes)) }),
        Content::Unnamed(_) => Err(at(FormatError::new("holds a tensor without a name")
            .with_help("give an .npz or a .safetensors file"))),
    }
}

fn map(path: &Path) -> std::result::Result<Bytes, TensorFileError> {
    let io = |error: std::io::Error| TensorFileError {
        path: path.to_owned(),
        problem: FormatError::new(error.to_string()),
    };
    Bytes::map(&files::open(path).map_err(io)?).map_err(io)
}

/// Writes a whole file or nothing, in the format that its ending names.
pub fn write(path: &Path, document: &Document<'_>) -> std::result::Result<(), TensorFileError> {
    let at = |problem| TensorFileError { path: path.to_owned(), problem };
    let bytes = Format::of(path).encode(document).map_err(at)?;
    atomic::write_file(path, &bytes).map_err(|error| at(FormatError::new(error.to_string())))
}

#[cfg(test)]
mod tests;
