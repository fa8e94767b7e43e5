//! The export flow: a trained checkpoint becomes a bundle of enumerated-shape packages.
//!
//! ```text
//! checkpoint -> model graph -> MIL program -> compression -> packages, tokenizer, export.json
//! ```

mod automatic;
mod calibration;
mod chunking;
mod compressed;
mod coreai;
mod describe;
pub(crate) mod destination;
mod embeddings;
mod encoder;
mod error;
mod layers;
mod options;
mod phases;
mod range;
mod training;
mod trial;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use destination::{Destination, write_file};
use phases::Phases;
use writing::Writing;

use crate::bundle::{self, Bundle, Manifest, Origin, Sensitivity, Settings};
use crate::checkpoint::{self, Checkpoint};
use crate::compress::{Calibration, Solutions};
use crate::lower::{ReadStats, lower_counted};
use crate::model::{self, Decoder, ModelGraph};
use crate::package::Watch;

pub use automatic::Automatic;
pub use describe::{architecture as describe_architecture, chunk as describe_chunk};
pub use embeddings::write as write_embeddings;
pub use encoder::architecture as describe_encoder;
pub use error::{ExportError, Occupant};
pub use options::{Chunking, ConfigFile, ExportOptions, Target};
pub use training::read_lengths as read_training_lengths;

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
    pub options: ExportOptions,
    /// Lengths that the model was trained with.
    pub training_lengths: Option<Vec<usize>>,
    /// The configuration file that the options come from, which `export.json` then names.
    pub config: Option<PathBuf>,
    /// How the precisions of weights come about.
    pub precision: PrecisionPlan,
}

impl Request {
    fn destination(&self) -> Destination {
        let sources = vec![("checkpoint", self.checkpoint.clone())];
        Destination { output: self.output.clone(), overwrite: self.overwrite, sources }
    }
}

/// How the precisions of weights come about.
#[derive(Debug, Clone, PartialEq)]
pub enum PrecisionPlan {
    /// As the options say.
    Fixed,
    /// As the options say, with codes chosen by what outputs lose on a text.
    Calibrated {
        /// The text.
        text: String,
    },
    /// Chosen layer by layer, in place of what the options say.
    Auto(Automatic),
}

/// What was measured for an export before it.
#[derive(Default)]
struct Measured {
    sensitivity: Option<Sensitivity>,
    solutions: Solutions,
    calibration: Option<Calibration>,
    range_repair: Option<bundle::RangeRepair>,
}

/// Observes the progress of an export.
pub trait Progress: Watch {
    /// A step has begun; the weights to write in it, if it writes any.
    fn began(&self, step: &str, bytes: Option<u64>);
}

/// No observer.
impl Progress for () {
    fn began(&self, _: &str, _: Option<u64>) {}
}

/// Exports a checkpoint. The bundle appears whole or not at all.
pub fn export(request: &Request, progress: &dyn Progress) -> Result<Bundle, ExportError> {
    request.destination().check()?;
    let mut phases = Phases::default();
    progress.began("open", None);
    let checkpoint = phases.time("open", || checkpoint::open(&request.checkpoint))?;
    let decoder = match phases.time("build", || model::build_any(&checkpoint))? {
        ModelGraph::Decoder(decoder) => decoder,
        ModelGraph::Encoder(encoder) => {
            return encoder::export(request, (&checkpoint, &encoder), phases, progress);
        }
    };
    let mut source = Source { checkpoint, decoder };
    let range_repair = match request.options.range_repair {
        Some(true) => Some(phases.time("range", || range::repair(request, &mut source, progress))?),
        _ => None,
    };
    let none = Measured { range_repair, ..Measured::default() };
    match &request.precision {
        PrecisionPlan::Fixed => export_as(request, &source, none, phases, progress),
        // The text was for the range alone.
        PrecisionPlan::Calibrated { .. } if none.range_repair.is_some() && !request.options.is_solvable() => {
            export_as(request, &source, none, phases, progress)
        }
        PrecisionPlan::Calibrated { text } => {
            let (solutions, calibration) = calibration::solve(request, &source, text, progress)?;
            let measured = Measured { solutions, calibration: Some(calibration), ..none };
            export_as(request, &source, measured, phases, progress)
        }
        PrecisionPlan::Auto(wanted) => {
            let (plan, sensitivity) = automatic::choose(request, &source, wanted, progress)?;
            let mut chosen = request.clone();
            chosen.options.precision = Some(plan);
            let mut measured = Measured { sensitivity: Some(sensitivity), ..none };
            if let Some(text) = &wanted.calibration {
                let (solutions, calibration) = calibration::solve(&chosen, &source, text, progress)?;
                (measured.solutions, measured.calibration) = (solutions, Some(calibration));
            }
            export_as(&chosen, &source, measured, phases, progress)
        }
    }
}

/// What is exported, opened once for all that is measured and written.
struct Source {
    checkpoint: Checkpoint,
    decoder: Decoder,
}

/// Exports with the precisions of the options.
fn export_as(
    request: &Request,
    Source { checkpoint, decoder }: &Source,
    measured: Measured,
    mut phases: Phases,
    progress: &dyn Progress,
) -> Result<Bundle, ExportError> {
    let Measured { sensitivity, solutions, calibration, range_repair } = measured;
    let mut resolved = request.options.resolve(decoder)?;
    resolved.check_training(request.training_lengths.as_deref())?;
    let stats = Arc::new(ReadStats::new(checkpoint.shards.iter().map(|shard| &shard.bytes[..])));
    let chunks = phases.time("lower", || lower_counted(decoder, &resolved.options, &stats))?;

    let destination = request.destination();
    let staging = destination.stage()?;
    let name = request.name.clone().unwrap_or_else(|| checkpoint.name());
    let about =
        format!("{name}: a {} language model of {} layers", decoder.architecture, decoder.layers.len());
    let writing = Writing::new(request, staging.path(), &resolved, (&about, &checkpoint.name()));
    let (described, compressed) = writing.chunks(chunks, &solutions, &mut phases, progress)?;
    phases.read(&checkpoint.shards, &stats);
    resolved.warnings.extend(remarks(checkpoint));
    resolved.warnings.extend(range_repair.iter().flat_map(range::remarks));
    resolved.warnings.extend(calibration.as_ref().and_then(calibration::remark));
    let host_embeddings = embeddings::write(decoder, &resolved.options, staging.path(), &stats)?;
    let tokenizer = write_tokenizer(checkpoint, staging.path())?;
    let manifest = Manifest {
        schema: bundle::SCHEMA.to_owned(),
        tool: describe::tool(),
        origin: Origin::Exported,
        name,
        architecture: Some(describe::architecture(decoder)),
        checkpoint: Some(phases.time("digest", || checkpoint.describe())),
        settings: Some(Settings {
            config: request.config.as_deref().map(|path| destination::from_bundle(&request.output, path)),
            ..resolved.settings(sensitivity.as_ref())
        }),
        contract: None,
        encoder: None,
        chunks: described,
        host_embeddings,
        tokenizer,
        compression: compressed.finish(&resolved.precision, calibration)?,
        sensitivity,
        range_repair,
        warnings: resolved.warnings,
        profile: phases.finish(),
    };
    destination.commit(staging, &manifest)
}

/// What of a checkpoint is not in its bundle.
fn remarks(checkpoint: &Checkpoint) -> Vec<String> {
    let parts = [("vision_config", "images"), ("audio_config", "sound")];
    let parts = parts.into_iter().filter(|(key, _)| checkpoint.config.get(key).is_some());
    let mut remarks: Vec<String> = parts
        .map(|(key, what)| {
            format!("only the text model is exported: the part for {what} (`{key}`) is not in the bundle")
        })
        .collect();
    if checkpoint.tokenizer.is_none() {
        remarks.push(
            "the checkpoint has no tokenizer, so the bundle takes token ids only: put tokenizer.json beside it \
             and export again"
                .to_owned(),
        );
    }
    remarks
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

#[cfg(test)]
mod tests;
