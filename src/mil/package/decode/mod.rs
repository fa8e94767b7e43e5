//! From the bytes of `model.mlmodel` to a model.
//!
//! Values are numbered in the order they are defined: a function's inputs, then block inputs and operation
//! outputs as they come, those of nested blocks before the outputs of the operation around them. Human-readable
//! `docString`s have no place in a model and are refused rather than lost.

mod interface;
mod literal;
mod pipeline;
mod program;
mod types;

pub(super) use interface::description_at;
pub(super) use literal::{Sources, element_count};
pub(super) use pipeline::{model_at, models};

use super::check;
use super::error::{ErrorKind, PackageError, Result};
use super::kind;
use super::schema::model;
use super::weights::{WeightFile, WeightFiles};
use super::wire::{Message, fields};
use crate::Model;

/// The model in the bytes of `model.mlmodel`, with the weight files it refers to.
pub fn decode_model(bytes: &[u8], weights: &WeightFiles) -> Result<Model> {
    decode(bytes, 0, weights).map(|(model, _)| model)
}

/// The model that starts `offset` bytes into its file, and the weight files as far as it refers to them.
pub(super) fn decode(bytes: &[u8], offset: usize, weights: &WeightFiles) -> Result<(Model, Vec<WeightFile>)> {
    check_kind(bytes, offset)?;
    let message = Message::at(bytes, offset, model::SCHEMA)?;
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
fn check_kind(bytes: &[u8], offset: usize) -> Result<()> {
    for field in fields(bytes, offset, model::SCHEMA.name) {
        let field = field?;
        if kind::is_pipeline(field.number()) {
            return Err(kind::pipeline(&pipeline::stages(&field)?));
        }
        if let Some(other) = kind::other(field.number()) {
            return Err(other.refusal());
        }
    }
    Ok(())
}

fn spec_version(message: &Message<'_>) -> Result<i32> {
    let version = message.int32(model::SPECIFICATION_VERSION)?;
    check::spec_version(version).map_err(|text| PackageError::new(ErrorKind::Unsupported, text))?;
    Ok(version)
}
