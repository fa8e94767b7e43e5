//! Weights and configuration of a checkpoint, read by candle and by code of this crate from the bytes of its files.
//!
//! Formats are decoded here a second time on purpose: a reference that decodes weights by the exporter's code would
//! repeat its mistakes.

mod gguf;
mod packed;

use std::fmt::Display;
use std::path::Path;

use candle_core::pickle::PthTensors;
use candle_core::{DType, Device, Error, Result, Tensor};
use safetensors::SafeTensors;
use serde_json::{Map, Value};

use anemeter_base::files;
use anemeter_convert::checkpoint::{Checkpoint, Config};
use gguf::Gguf;
use packed::Packing;

/// The files of a checkpoint.
pub(super) enum Weights<'a> {
    Gguf(Gguf<'a>),
    Safetensors(Vec<SafeTensors<'a>>, Packing),
    Torch(Vec<PthTensors>),
}

/// Opens the files of a checkpoint and reads its configuration, in the keys of `config.json`.
pub(super) fn open(checkpoint: &Checkpoint) -> Result<(Weights<'_>, Config)> {
    let first = checkpoint.shards.first().ok_or_else(|| Error::msg("the checkpoint has no weights"))?;
    if first.bytes.starts_with(b"GGUF") {
        let file = Gguf::open(&first.bytes)?;
        let config = Config::new(file.config()?);
        return Ok((Weights::Gguf(file), config));
    }
    let values = read_config(checkpoint)?;
    // Modules beside a transformer have folders of their own, and names that say nothing.
    let shards = || checkpoint.shards.iter().filter(|shard| shard.path.parent() == first.path.parent());
    let weights = if first.bytes.starts_with(b"PK") {
        let files = shards().map(|shard| PthTensors::new(&shard.path, None));
        Weights::Torch(files.collect::<Result<_>>()?)
    } else {
        let files = shards().map(|shard| {
            let wrong = |e| Error::msg(format!("{}: {e}", shard.path.display()));
            SafeTensors::deserialize(&shard.bytes).map_err(wrong)
        });
        Weights::Safetensors(files.collect::<Result<_>>()?, Packing::read(&values)?)
    };
    Ok((weights, Config::new(values)))
}

/// `config.json` of the checkpoint's folder.
fn read_config(checkpoint: &Checkpoint) -> Result<Map<String, Value>> {
    let folder = match checkpoint.path.is_dir() {
        true => Some(checkpoint.path.as_path()),
        false => checkpoint.path.parent(),
    };
    let path = folder.unwrap_or(&checkpoint.path).join("config.json");
    match read_json(&path)? {
        Value::Object(values) => Ok(values),
        _ => Err(Error::msg(format!("{}: is no map of keys and values", path.display()))),
    }
}

/// A file of settings: a regular one of a sane size, whatever has come to be in its place since the exporter read it.
pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let wrong = |e: &dyn Display| Error::msg(format!("{}: {e}", path.display()));
    let text = files::read(path, files::SETTINGS).map_err(|e| wrong(&e))?;
    serde_json::from_slice(&text).map_err(|e| wrong(&e))
}

impl Weights<'_> {
    /// A tensor by Hugging Face's name and in its layout, as f32.
    pub(super) fn tensor(&self, name: &str) -> Result<Tensor> {
        match self {
            Weights::Gguf(file) => file.tensor(name),
            Weights::Safetensors(files, packing) => packed::tensor(files, packing, name),
            Weights::Torch(files) => {
                for file in files {
                    if let Some(tensor) = file.get(name)? {
                        return tensor.to_dtype(DType::F32);
                    }
                }
                Err(missing(name))
            }
        }
    }
}

fn missing(name: &str) -> Error {
    Error::msg(format!("tensor `{name}` is missing"))
}

/// A matrix of elements by row and column.
fn matrix(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f32) -> Result<Tensor> {
    let values = (0..rows * columns).map(|at| element(at / columns, at % columns));
    Tensor::from_vec(values.collect(), (rows, columns), &Device::Cpu)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write scratch files")]
mod tests;
