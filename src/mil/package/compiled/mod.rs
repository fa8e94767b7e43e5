//! Compiled models (`.mlmodelc`): the program as text, the description in Core ML's own frame, and the weights as they
//! were in the package.
//!
//! ```text
//! model.mil                the program, in the text form of MIL
//! coremldata.bin           kind, specification version, inputs, outputs, states, metadata
//! weights/weight.bin       the file of the package, byte for byte
//! metadata.json            what Xcode shows; says nothing that is not in the others
//! analytics/               names and digests
//! model0/, model1/, ..     in a pipeline: its models, in the same layout
//! ```
//!
//! The program becomes the same [`Model`] that the protobuf of the package gives, but for the order of function inputs,
//! which the compiler sorts, and for what it adds to `buildInfo`.

mod description;
mod lexer;
mod number;
mod program;
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::check;
use super::decode::{Sources, description_at};
use super::error::{ErrorKind, PackageError, Result};
use super::files::Files;
use super::kind::{self, Kind};
use super::manifest::WEIGHTS;
use super::pipeline::{Stage, stage_name};
use super::source::check_size;
use super::weights::{WeightFile, WeightFiles};
use crate::Model;

/// The file that every compiled model has.
pub(super) const DESCRIPTION: &str = "coremldata.bin";
/// The program of a compiled ML program.
const TEXT: &str = "model.mil";
const ENDING: &str = "mlmodelc";

/// A compiled model that was read.
pub(super) struct Compiled {
    pub(super) model: Model,
    pub(super) weight_files: Vec<WeightFile>,
    pub(super) text_path: PathBuf,
    pub(super) text_bytes: u64,
    pub(super) description_digest: u128,
}

/// Whether a folder is meant to be a compiled model.
pub(super) fn is_one(folder: &Path) -> bool {
    folder.join(DESCRIPTION).exists() || folder.extension().is_some_and(|e| e == ENDING)
}

/// Reads a compiled ML program; other kinds are refused by name.
pub(super) fn decode(files: Files) -> Result<Compiled> {
    let (description_path, bytes) = files.map(Path::new(DESCRIPTION))?;
    let in_description = |e: PackageError| e.in_file(&description_path);
    check_kind(&files, &bytes).map_err(in_description)?;
    let frame = description::frame(&bytes).map_err(in_description)?;
    let spec_version = frame.spec_version;
    check::spec_version(spec_version)
        .map_err(|text| in_description(PackageError::new(ErrorKind::Unsupported, text)))?;

    let (text_path, text) = files.map(Path::new(TEXT))?;
    check_size(&text_path, &text)?;
    let weights = WeightFiles::in_folder(files, WEIGHTS.into());
    let mut sources = Sources::new(&weights);
    let program = program::program(&text, &mut sources).map_err(|e| e.in_file(&text_path))?;
    let (interfaces, metadata) =
        description_at(frame.description, frame.offset, &program).map_err(in_description)?;
    Ok(Compiled {
        model: Model { spec_version, program, interfaces, metadata },
        weight_files: sources.blobs.finish()?,
        text_path,
        text_bytes: text.len() as u64,
        description_digest: xxh3_128(&bytes),
    })
}

/// The models of a compiled pipeline; `None` if it is a model of another kind.
pub(super) fn stages(files: &Files) -> Result<Option<Vec<Stage>>> {
    let (path, bytes) = files.map(Path::new(DESCRIPTION))?;
    match kind::is_pipeline(description::kind(&bytes).map_err(|e| e.in_file(&path))?) {
        true => folders(files).map(Some),
        false => Ok(None),
    }
}

fn check_kind(files: &Files, bytes: &[u8]) -> Result<()> {
    let field = description::kind(bytes)?;
    match Kind::of(field) {
        Some(kind::ML_PROGRAM) => Ok(()),
        Some(kind::PIPELINE) => Err(kind::pipeline(&folders(files)?)),
        Some(other) => Err(other.refusal()),
        None => {
            let text = format!("is a model of the unknown kind {field}");
            Err(PackageError::new(ErrorKind::Unsupported, text).at_offset(0))
        }
    }
}

/// The folders of a pipeline's models, which are numbered without gaps.
fn folders(files: &Files) -> Result<Vec<Stage>> {
    let mut stages = Vec::new();
    loop {
        let index = stages.len();
        let file = Path::new(&stage_name(index)).join(DESCRIPTION);
        if files.check(&file).is_err_and(|e| e.kind() == ErrorKind::Missing) {
            return Ok(stages);
        }
        let (path, bytes) = files.map(&file)?;
        let field = description::kind(&bytes).map_err(|e| e.in_file(&path))?;
        stages.push(Stage::new(index, Kind::of(field), String::new()));
    }
}
