//! From the bytes of `model.mlmodel` to a model.
//!
//! Values are numbered in the order they are defined: a function's inputs, then block inputs and operation
//! outputs as they come, those of nested blocks before the outputs of the operation around them. Human-readable
//! `docString`s have no place in a model and are refused rather than lost.

mod interface;
mod literal;
mod program;
mod types;

use literal::Sources;

use super::check;
use super::error::{ErrorKind, PackageError, Result};
use super::schema::{self, model};
use super::weights::{WeightFile, WeightFiles};
use super::wire::{Message, top_level_fields};
use crate::Model;

/// The model in the bytes of `model.mlmodel`, with the weight files it refers to.
pub fn decode_model(bytes: &[u8], weights: &WeightFiles) -> Result<Model> {
    decode(bytes, weights).map(|(model, _)| model)
}

/// The model, and the weight files as far as it refers to them.
pub(super) fn decode(bytes: &[u8], weights: &WeightFiles) -> Result<(Model, Vec<WeightFile>)> {
    check_kind(bytes)?;
    let message = Message::root(bytes, model::SCHEMA)?;
    let spec_version = spec_version(&message)?;
    if message.boolean(model::IS_UPDATABLE)? {
        return Err(PackageError::new(
            ErrorKind::Unsupported,
            "is an updatable model, which is not supported",
        ));
    }
    let mut sources = Sources::new(weights);
    let program = match message.get(model::ML_PROGRAM) {
        Some(field) => program::program(&field, &mut sources)?,
        None => return Err(PackageError::malformed("holds no model: there is no mlProgram")),
    };
    let (interfaces, metadata) = interface::description(message.get(model::DESCRIPTION), &program)?;
    Ok((Model { spec_version, program, interfaces, metadata }, sources.blobs.finish()?))
}

/// Refuses other kinds of model by their field number alone, so that a large one costs nothing.
fn check_kind(bytes: &[u8]) -> Result<()> {
    for field in top_level_fields(bytes, model::SCHEMA.name) {
        let field = field?;
        if schema::is_pipeline(field) {
            let message = "is a pipeline, several models that run one after the other; a single ML program (mlProgram) is needed";
            return Err(PackageError::new(ErrorKind::Unsupported, message).with_help(
                "export without the other stages (a detector without its NMS, for example), or save the stage that is an ML \
                 program as a package of its own: in coremltools, \
                 MLModel(spec.pipeline.models[0], weights_dir=model.weights_dir).save(\"stage.mlpackage\")",
            ));
        }
        if let Some(kind) = schema::other_kind(field) {
            let message = format!("is a {kind} model; only ML programs (mlProgram) are supported");
            return Err(PackageError::new(ErrorKind::Unsupported, message)
                .with_help("re-convert with convert_to=\"mlprogram\""));
        }
    }
    Ok(())
}

fn spec_version(message: &Message<'_>) -> Result<i32> {
    let version = message.int32(model::SPECIFICATION_VERSION)?;
    check::spec_version(version).map_err(|text| PackageError::new(ErrorKind::Unsupported, text))?;
    Ok(version)
}
