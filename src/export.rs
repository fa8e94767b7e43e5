//! The export flow: a trained checkpoint becomes a bundle of enumerated-shape packages.
//!
//! ```text
//! checkpoint -> model graph -> MIL program -> compression -> packages, tokenizer, export.json
//! ```

mod about;
mod apple_llm;
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
mod range;
mod rotation;
mod training;
mod writing;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use about::ModelCard;
use apple_llm::AppleLlmOptions;
use destination::{Destination, write_file};
use phases::Phases;
use writing::Writing;

use crate::bundle::{self, Bundle, Manifest, Origin, Sensitivity, Settings};
use crate::checkpoint::{self, Checkpoint};
use crate::compress::{Calibration, Solutions};
use crate::lower::{ReadStats, lower_counted};
use crate::model::{self, Decoder, ModelGraph};
use crate::package::Watch;
use crate::vocabulary::{Layout, Rotate};

pub use apple_llm::AppleLlmBundle;
pub use automatic::{Automatic, Budget};
pub use describe::{architecture as describe_architecture, chunk as describe_chunk};
pub use embeddings::write as write_embeddings;
pub use encoder::architecture as describe_encoder;
pub use error::{ExportError, Occupant};
pub use options::{Chunking, ConfigFile, ExportOptions};
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
    /// Fails if the precision makes most models useless and nobody asked for just that.
    fn check_precision(&self) -> Result<(), ExportError> {
        match (&self.precision, &self.options.precision) {
            (PrecisionPlan::Fixed, Some(plan)) if plan.default.needs_data() => {
                Err(ExportError::NeedsData(plan.default))
            }
            _ => Ok(()),
        }
    }

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
    request.check_precision()?;
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
    if request.options.layout() != Layout::Anemeter {
        return Err(ExportError::option("layout", "is for `export_apple_llm`, which writes no bundle"));
    }
    let mut source = Source { checkpoint, decoder };
    let range_repair = match request.options.range_repair {
        Some(true) => Some(phases.time("range", || range::repair(request, &mut source, progress))?),
        _ => None,
    };
    let (request, source, measured) = measured(request, source, progress)?;
    let measured = Measured { range_repair, ..measured };
    export_as(&request, &source, measured, phases, progress)
}

/// Exports a checkpoint for Apple's programs for language models. The folder appears whole or not at all.
pub fn export_apple_llm(request: &Request, progress: &dyn Progress) -> Result<AppleLlmBundle, ExportError> {
    request.check_precision()?;
    apple_llm::check(request)?;
    if request.options.range_repair == Some(true) {
        return Err(ExportError::option("range_repair", "is not for this layout yet"));
    }
    let mut phases = Phases::default();
    progress.began("open", None);
    let checkpoint = phases.time("open", || checkpoint::open(&request.checkpoint))?;
    let decoder = match phases.time("build", || model::build_any(&checkpoint))? {
        ModelGraph::Decoder(decoder) => decoder,
        ModelGraph::Encoder(_) => {
            let message = "is for language models, and this is an encoder: leave it out";
            return Err(ExportError::option("layout", message));
        }
    };
    let source = Source { checkpoint, decoder };
    // Before anything is measured, which may take long.
    AppleLlmOptions::resolve(&request.options, &source.decoder)?;
    let (request, source, measured) = measured(request, source, progress)?;
    let wanted = AppleLlmOptions::resolve(&request.options, &source.decoder)?;
    apple_llm::export(&request, &source, (&wanted, measured), phases, progress)
}

/// What is measured before an export: the request with what follows from it, and the model in the coordinates that its
/// codes were chosen for.
fn measured<'r>(
    request: &'r Request,
    mut source: Source,
    progress: &dyn Progress,
) -> Result<(Cow<'r, Request>, Source, Measured), ExportError> {
    let wanted = match &request.precision {
        PrecisionPlan::Fixed => {
            let rotated = rotated(request, &mut source)?;
            return Ok((Cow::Borrowed(request), source, Measured { rotated, ..Measured::default() }));
        }
        // The text was for the range alone.
        PrecisionPlan::Calibrated { .. }
            if request.options.range_repair == Some(true) && !request.options.is_solvable() =>
        {
            let rotated = rotated(request, &mut source)?;
            return Ok((Cow::Borrowed(request), source, Measured { rotated, ..Measured::default() }));
        }
        PrecisionPlan::Calibrated { text } => {
            let found = calibration::solve(request, &source, text, progress)?;
            let (source, measured) = calibrated(source, found, None);
            return Ok((Cow::Borrowed(request), source, measured));
        }
        PrecisionPlan::Auto(wanted) => wanted,
    };
    let rotated = match wanted.calibration {
        None => rotated(request, &mut source)?,
        Some(_) => None,
    };
    let decoder = match (&wanted.calibration, request.options.rotate) {
        (None, _) | (_, None | Some(Rotate::Off)) => source.decoder.clone(),
        _ => model::rotate(&source.decoder).decoder,
    };
    let (plan, sensitivity) = automatic::choose(request, &source, &decoder, wanted, progress)?;
    let mut chosen = request.clone();
    chosen.options.precision = Some(plan);
    let (source, measured) = match &wanted.calibration {
        Some(text) => {
            let found = calibration::solve(&chosen, &source, text, progress)?;
            calibrated(source, found, Some(sensitivity))
        }
        None => (source, Measured { sensitivity: Some(sensitivity), rotated, ..Measured::default() }),
    };
    Ok((Cow::Owned(chosen), source, measured))
}

/// Rotates the model if that was asked for.
fn rotated(request: &Request, source: &mut Source) -> Result<Option<bundle::Rotated>, ExportError> {
    let Some((decoder, rotated)) = rotation::apply(request, source)? else { return Ok(None) };
    source.decoder = decoder;
    Ok(Some(rotated))
}

/// The model in the coordinates that codes were chosen for, with the codes.
fn calibrated(
    source: Source,
    found: calibration::Calibrated,
    sensitivity: Option<Sensitivity>,
) -> (Source, Measured) {
    let calibration::Calibrated { decoder, solutions, calibration, rotated } = found;
    let measured =
        Measured { sensitivity, solutions, calibration: Some(calibration), rotated, range_repair: None };
    (Source { decoder, ..source }, measured)
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
    let Measured { sensitivity, solutions, calibration, rotated, range_repair } = measured;
    let mut resolved = request.options.resolve(decoder)?;
    resolved.check_training(request.training_lengths.as_deref())?;
    let stats = Arc::new(ReadStats::new(checkpoint.shards.iter().map(|shard| &shard.bytes[..])));
    let chunks = phases.time("lower", || lower_counted(decoder, &resolved.options, &stats))?;

    request.destination().make(|folder| {
        let name = request.name.clone().unwrap_or_else(|| checkpoint.name());
        let about =
            format!("{name}: a {} language model of {} layers", decoder.architecture, decoder.layers.len());
        let card = ModelCard::new(&request.options, checkpoint, about);
        let writing = Writing::new(request, folder, &resolved, card);
        let (described, compressed) = writing.chunks(chunks, &solutions, &mut phases, progress)?;
        phases.read(&checkpoint.shards, &stats);
        resolved.warnings.extend(remarks(checkpoint));
        resolved.warnings.extend(range_repair.iter().flat_map(range::remarks));
        resolved.warnings.extend(calibration.as_ref().and_then(calibration::remark));
        let chosen = sensitivity.as_ref().map(|sensitivity| automatic::remarks(decoder, sensitivity));
        resolved.warnings.extend(chosen.into_iter().flatten());
        let host_embeddings = embeddings::write(decoder, &resolved.options, folder, &stats)?;
        let tokenizer = write_tokenizer(checkpoint, folder)?;
        Ok(Manifest {
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
            rotated,
            warnings: resolved.warnings,
            profile: phases.finish(),
        })
    })
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
    remarks.extend(checkpoint.about.unread.as_ref().map(|unread| format!("could not be read: {unread}")));
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
