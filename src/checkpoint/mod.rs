//! Trained checkpoints as names and borrowed bytes: Hugging Face folders, GGUF files, PyTorch state dicts.
//!
//! Whatever the container, a [`Checkpoint`] speaks Hugging Face's words: configuration keys as in
//! `config.json`, tensor names and layouts as transformers writes them. Tensors stay mapped and are converted
//! range by range when they are read.

mod blocks;
mod config;
mod error;
mod files;
mod gguf;
mod groups;
mod hugging_face;
mod quantised;
mod safetensors;
mod stored;
mod torch;
mod unique;
mod weights;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use files::{Folder, Mapped};

use crate::tensor::Bytes;

pub use blocks::Block;
pub use config::{Config, ConfigError};
pub use error::CheckpointError;
pub use groups::Groups;
pub use quantised::{Fake, Scaled};
pub use stored::{Elements, Encoding, GgufEncoding, Integers, Order, Stored};

/// A checkpoint, opened.
#[derive(Debug)]
pub struct Checkpoint {
    /// Where it is.
    pub path: PathBuf,
    /// The model's configuration, in the keys of `config.json`.
    pub config: Config,
    /// The files that hold its weights.
    pub shards: Vec<Shard>,
    /// Tensors by Hugging Face name.
    pub tensors: BTreeMap<String, Stored>,
    /// The content of `tokenizer.json`, read or rebuilt.
    pub tokenizer: Option<Vec<u8>>,
    /// The chat template, if there is one.
    pub chat_template: Option<String>,
    /// Token that begins a text.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

/// A file that holds weights, mapped.
#[derive(Debug, Clone)]
pub struct Shard {
    /// Where it is.
    pub path: PathBuf,
    /// All of it.
    pub bytes: Bytes,
    /// Time that opening and mapping it took.
    pub mapping: Duration,
}

/// Opens a checkpoint: a Hugging Face folder, a GGUF file, or a file of weights beside its `config.json`.
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint, CheckpointError> {
    let path = path.as_ref();
    if path.is_dir() {
        return hugging_face::open(&Folder::open(path)?, None);
    }
    let file = Mapped::open(path)?;
    if gguf::is_one(&file) {
        return gguf::open(&file);
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    hugging_face::open(&Folder::open(folder)?, Some(&file))
}

#[cfg(test)]
pub(crate) use quantised::testing;
#[cfg(test)]
mod tests;
