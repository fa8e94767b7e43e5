//! Trained checkpoints as names and borrowed bytes: Hugging Face folders, GGUF files, PyTorch state dicts.
//!
//! Whatever the container, a [`Checkpoint`] speaks Hugging Face's words: configuration keys as in
//! `config.json`, tensor names and layouts as transformers writes them. Tensors stay mapped and are converted
//! range by range when they are read.

mod about;
mod blocks;
mod config;
mod digest;
mod error;
mod files;
mod gguf;
mod hub_cache;
mod hugging_face;
mod mlx_affine;
mod quantized;
mod safetensors;
mod sentence;
mod stored;
mod torch;
mod unique;
mod weights;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use files::{Folder, Mapped};

use anemeter_kernels::tensor::Bytes;

pub use about::About;
pub use blocks::Block;
pub use config::{Config, ConfigError};
pub use error::CheckpointError;
pub use hub_cache::{HubCache, ModelName, Snapshot};
pub use mlx_affine::MlxAffine;
pub use quantized::{FakeQuantized, GroupQuantized};
pub use sentence::{SentenceModule, SentenceModules};
pub use stored::{Elements, Encoding, GgufEncoding, Order, QuantizedBlocks, Stored};

/// A checkpoint, opened.
#[derive(Debug)]
pub struct Checkpoint {
    /// File or folder that was opened.
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
    /// What sentence-transformers says of it, if it does.
    pub sentence: Option<SentenceModules>,
    /// Who made it, what it may be used for, where it came from.
    pub about: About,
}

/// A file that holds weights, mapped.
#[derive(Debug, Clone)]
pub struct Shard {
    /// Path of the shard.
    pub path: PathBuf,
    /// The mapped file.
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

/// Where a checkpoint is: a path as it is, or a model of the Hugging Face Hub in its cache.
///
/// What exists is a path, whatever it looks like; so is what looks like no model's name.
pub fn locate(path: impl AsRef<Path>) -> Result<PathBuf, CheckpointError> {
    let path = path.as_ref();
    let name = path.to_str().and_then(|text| text.parse::<ModelName>().ok());
    match (name, HubCache::of_user()) {
        (Some(name), Some(cache)) if !path.exists() => Ok(cache.find(&name)?.path),
        _ => Ok(path.to_owned()),
    }
}

/// What says how text becomes tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFiles {
    /// The content of `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// The chat template, if there is one.
    pub chat_template: Option<String>,
    /// Token that begins a text.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

/// Reads a `tokenizer.json` and what the files beside it say of templates and tokens; no weights need be there.
pub fn text_files(path: impl AsRef<Path>) -> Result<TextFiles, CheckpointError> {
    hugging_face::text_files(path.as_ref())
}

#[cfg(any(test, feature = "testing"))]
pub use quantized::testing;
#[cfg(test)]
mod tests;
