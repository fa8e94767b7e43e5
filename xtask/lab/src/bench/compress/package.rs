//! The package that both sides compress.

use std::collections::BTreeSet;
use std::path::Path;

use anemeter::lower::{Options, lower};
use anemeter::mil::verify::verify;
use anemeter::package::{self, WriteOptions};
use anemeter::vocabulary::{Embeddings, KvForm};
use anemeter::{checkpoint, model};
use anyhow::{Context, Result};

/// Writes a checkpoint, or its first layers, as a package with one function: coremltools takes no others.
pub(super) fn write(source: &Path, layers: Option<usize>, path: &Path) -> Result<u64> {
    let checkpoint = checkpoint::open(source)?;
    let mut decoder = model::build(&checkpoint)?;
    decoder.layers.truncate(layers.unwrap_or(usize::MAX));
    let options = Options {
        kv: BTreeSet::from([KvForm::None]),
        seq_lens: vec![64],
        embeddings: Embeddings::Graph,
        ..Options::default()
    };
    let chunk = lower(&decoder, &options)?.pop().context("the model has no layers")?;
    Ok(package::write(&verify(chunk.model)?, path, WriteOptions::default())?.bytes)
}
