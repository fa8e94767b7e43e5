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
mod options;
mod phases;
mod rotation;
mod training;
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
use crate::vocabulary::Rotate;

pub use automatic::{Automatic, Budget};
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
    rotated: Option<bundle::Rotated>,
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
    let source = Source { checkpoint, decoder };
    match &request.precision {
        PrecisionPlan::Fixed => {
            let (mut source, mut measured) = (source, Measured::default());
            if let Some((decoder, rotated)) = rotation::apply(request, &source)? {
                (source.decoder, measured.rotated) = (decoder, Some(rotated));
            }
            export_as(request, &source, measured, phases, progress)
        }
        PrecisionPlan::Calibrated { text } => {
            let found = calibration::solve(request, &source, text, progress)?;
            export_calibrated(request, (source, found), None, phases, progress)
        }
        PrecisionPlan::Auto(wanted) => {
            let mut source = source;
            let mut measured = Measured::default();
            if wanted.calibration.is_none()
                && let Some((decoder, rotated)) = rotation::apply(request, &source)?
            {
                (source.decoder, measured.rotated) = (decoder, Some(rotated));
            }
            let decoder = match (&wanted.calibration, request.options.rotate) {
                (None, _) | (_, None | Some(Rotate::Off)) => source.decoder.clone(),
                _ => model::rotate(&source.decoder).decoder,
            };
            let (plan, sensitivity) = automatic::choose(request, &source, &decoder, wanted, progress)?;
            let mut chosen = request.clone();
            chosen.options.precision = Some(plan);
            if let Some(text) = &wanted.calibration {
                let found = calibration::solve(&chosen, &source, text, progress)?;
                return export_calibrated(&chosen, (source, found), Some(sensitivity), phases, progress);
            }
            measured.sensitivity = Some(sensitivity);
            export_as(&chosen, &source, measured, phases, progress)
        }
    }
}

/// Exports with codes that were chosen by data, in the coordinates that they were chosen for.
fn export_calibrated(
    request: &Request,
    (mut source, found): (Source, calibration::Calibrated),
    sensitivity: Option<Sensitivity>,
    phases: Phases,
    progress: &dyn Progress,
) -> Result<Bundle, ExportError> {
    let calibration::Calibrated { decoder, solutions, calibration, rotated } = found;
    source.decoder = decoder;
    let measured = Measured { sensitivity, solutions, calibration: Some(calibration), rotated };
    export_as(request, &source, measured, phases, progress)
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
    let Measured { sensitivity, solutions, calibration, rotated } = measured;
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
        rotated,
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
