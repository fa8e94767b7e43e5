//! The export flow: a trained checkpoint becomes a bundle of enumerated-shape packages.
//!
//! ```text
//! checkpoint -> model graph -> MIL program -> compression -> packages, tokenizer, export.json
//! ```

mod automatic;
mod calibration;
mod chunking;
mod compressed;
mod describe;
mod digest;
mod embeddings;
mod error;
mod phases;
mod training;
mod trial;
mod wishes;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use compressed::Compressed;
use phases::Phases;

use crate::bundle::{self, Bundle, Manifest, Sensitivity};
use crate::checkpoint::{self, Checkpoint};
use crate::compress::{self, Calibration, Importance};
use crate::lower::{self, Meter, lower_metered};
use crate::mil::verify::verify;
use crate::model;
use crate::package::atomic::Staging;
use crate::package::{Watch, WriteOptions, write_watched};

pub use automatic::Automatic;
pub use describe::{architecture as describe_architecture, chunk as describe_chunk};
pub use digest::checkpoint as describe_checkpoint;
pub use embeddings::write as write_embeddings;
pub use error::ExportError;
pub use training::read_lengths as read_training_lengths;
pub use wishes::{Chunking, ConfigFile, Target, Wishes};

/// What to export, and where to.
#[derive(Debug, Clone)]
pub struct Request {
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// The folder of the bundle.
    pub output: PathBuf,
    /// Whether a bundle that is there already is replaced.
    pub overwrite: bool,
    /// The model's name; the checkpoint's if there is none.
    pub name: Option<String>,
    /// How to export it.
    pub wishes: Wishes,
    /// Lengths that the model was trained with.
    pub training_lengths: Option<Vec<usize>>,
    /// Whether precisions are chosen layer by layer, in place of those wished for.
    pub automatic: Option<Automatic>,
    /// A text on which it is measured how much inputs matter, for the palettes wished for.
    pub calibration: Option<String>,
}

/// What was measured for an export before it.
#[derive(Default)]
struct Measured {
    sensitivity: Option<Sensitivity>,
    importance: Importance,
    calibration: Option<Calibration>,
}

/// Hears how far an export is.
pub trait Progress: Watch {
    /// A step has begun; the weights to write in it, if it writes any.
    fn began(&self, step: &str, bytes: Option<u64>);
}

/// Hears nothing.
impl Progress for () {
    fn began(&self, _: &str, _: Option<u64>) {}
}

/// Exports a checkpoint. The bundle appears whole or not at all.
pub fn export(request: &Request, progress: &dyn Progress) -> Result<Bundle, ExportError> {
    check_output(request)?;
    if let Some(wanted) = &request.automatic {
        let (plan, sensitivity) = automatic::choose(request, wanted, progress)?;
        let mut chosen = request.clone();
        chosen.wishes.precision = Some(plan);
        let measured = Measured { sensitivity: Some(sensitivity), ..Measured::default() };
        return export_as(&chosen, measured, progress);
    }
    let measured = match &request.calibration {
        Some(text) => {
            let (importance, calibration) = calibration::measure(request, text, progress)?;
            Measured { importance, calibration: Some(calibration), ..Measured::default() }
        }
        None => Measured::default(),
    };
    export_as(request, measured, progress)
}

/// Exports with the precisions wished for.
fn export_as(request: &Request, measured: Measured, progress: &dyn Progress) -> Result<Bundle, ExportError> {
    let Measured { sensitivity, importance, calibration } = measured;
    let mut phases = Phases::default();
    progress.began("open", None);
    let checkpoint = phases.time("open", || checkpoint::open(&request.checkpoint))?;
    let decoder = phases.time("build", || model::build(&checkpoint))?;
    let mut settled = request.wishes.settle(&decoder)?;
    settled.check_training(request.training_lengths.as_deref())?;
    let meter = Arc::new(Meter::new(checkpoint.shards.iter().map(|shard| &shard.bytes[..])));
    let chunks = phases.time("lower", || lower_metered(&decoder, &settled.options, &meter))?;

    let staging = Staging::new(&request.output).map_err(|e| ExportError::io(&request.output, &e))?;
    let mut described = Vec::with_capacity(chunks.len());
    let mut compressed = Compressed::default();
    let staged = WriteOptions { staged: true, ..WriteOptions::default() };
    for chunk in chunks {
        let file = format!("{}.mlpackage", chunk.name);
        progress.began(&file, Some(describe::weight_bytes(&chunk.model)));
        let lower::Chunk { layers, positions, model, .. } = chunk;
        let (model, compression) = compress::apply_weighted(model, &settled.precision, &importance)?;
        let model = phases.time("check", || verify(model))?;
        let path = staging.path().join(&file);
        let summary = write_watched(&model, &path, staged, progress)?;
        phases.wrote(&file, &summary);
        compressed.add(&compression).map_err(|e| ExportError::io(&request.output, &e))?;
        described.push(describe::chunk(file, &summary, &layers, &positions, model.model()));
    }
    phases.read(&checkpoint.shards, &meter);
    let host_embeddings = embeddings::write(&decoder, &settled.options, staging.path(), &meter)?;
    let tokenizer = write_tokenizer(&checkpoint, staging.path())?;
    let manifest = Manifest {
        schema: bundle::SCHEMA.to_owned(),
        tool: describe::tool(),
        name: request.name.clone().unwrap_or_else(|| describe::name(&checkpoint)),
        architecture: describe::architecture(&decoder),
        checkpoint: phases.time("digest", || digest::checkpoint(&checkpoint)),
        settings: settled.settings(sensitivity.as_ref()),
        chunks: described,
        host_embeddings,
        tokenizer,
        compression: compressed.finish(&settled.precision, calibration)?,
        sensitivity,
        warnings: settled.warnings,
        profile: phases.finish(),
    };
    commit(staging, &manifest, &request.output)
}

fn commit(staging: Staging, manifest: &Manifest, output: &Path) -> Result<Bundle, ExportError> {
    let failed = |e: std::io::Error| ExportError::io(output, &e);
    let text = serde_json::to_string_pretty(manifest).map_err(|e| ExportError::io(output, &e.into()))?;
    write_file(&staging.path().join(bundle::MANIFEST), format!("{text}\n").as_bytes())?;
    staging.commit().map_err(failed)?;
    Ok(Bundle::open(output)?)
}

fn write_tokenizer(checkpoint: &Checkpoint, folder: &Path) -> Result<Option<bundle::Tokenizer>, ExportError> {
    let Some(json) = &checkpoint.tokenizer else { return Ok(None) };
    let name = "tokenizer.json";
    write_file(&folder.join(name), json)?;
    Ok(Some(bundle::Tokenizer {
        file: describe::file(name, json),
        chat_template: checkpoint.chat_template.clone(),
        bos: checkpoint.bos,
        eos: checkpoint.eos.clone(),
    }))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ExportError> {
    use std::io::Write;
    let write = || fs::File::create_new(path)?.write_all(bytes);
    write().map_err(|e| ExportError::io(path, &e))
}

/// Refuses to replace anything but a bundle, and that only if asked to.
fn check_output(request: &Request) -> Result<(), ExportError> {
    let output = &request.output;
    let Ok(metadata) = output.symlink_metadata() else { return Ok(()) };
    let empty = metadata.is_dir() && fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_none());
    if empty {
        return Ok(());
    }
    match (request.overwrite, output.join(bundle::MANIFEST).is_file()) {
        (true, true) => Ok(()),
        (false, true) => Err(ExportError::Exists { path: output.clone(), what: "holds a bundle already" }),
        (_, false) => Err(ExportError::Exists { path: output.clone(), what: "holds something else" }),
    }
}

#[cfg(test)]
mod tests;
