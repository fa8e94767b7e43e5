//! The package that is measured: a checkpoint, lowered and written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anemeter::lower::{Options, lower};
use anemeter::mil::verify::verify;
use anemeter::package::{self, WriteOptions};
use anemeter::vocabulary::KvForm;
use anemeter::{checkpoint, model};
use anyhow::{Context, Result, ensure};

/// What the package is to hold.
pub(crate) struct Wanted<'a> {
    pub(crate) checkpoint: &'a Path,
    /// Sequence lengths of the `io` form and cache lengths of both forms.
    pub(crate) lengths: &'a [usize],
    /// Tokens per prediction of the `state` form's prefill.
    pub(crate) query: usize,
}

/// Writes the package with the `io` and `state` forms into a folder, unless an equal one is there.
pub(crate) fn make(folder: &Path, wanted: &Wanted<'_>) -> Result<PathBuf> {
    let source = fs::metadata(wanted.checkpoint)
        .with_context(|| format!("look at the checkpoint {}", wanted.checkpoint.display()))?;
    let lengths: Vec<String> = wanted.lengths.iter().map(ToString::to_string).collect();
    let name = format!("decode-{}-{}-q{}.mlpackage", source.len(), lengths.join("-"), wanted.query);
    let path = folder.join(name);
    if path.exists() {
        return Ok(path);
    }
    println!("writing {}", path.display());
    fs::create_dir_all(folder)?;
    let decoder = model::build(&checkpoint::open(wanted.checkpoint)?)?;
    let options = Options {
        kv: BTreeSet::from([KvForm::Io, KvForm::State]),
        seq_lens: wanted.lengths.to_vec(),
        contexts: wanted.lengths.to_vec(),
        query: wanted.query,
        ..Options::default()
    };
    let chunks = lower(&decoder, &options)?;
    ensure!(chunks.len() == 1, "one package was asked for, {} were made", chunks.len());
    for chunk in chunks {
        package::write(
            &verify(chunk.model)?,
            &path,
            WriteOptions { overwrite: true, ..WriteOptions::default() },
        )?;
    }
    Ok(path)
}
