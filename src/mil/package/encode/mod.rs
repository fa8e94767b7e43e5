//! From a model to the bytes of `model.mlmodel`, the same ones each time: maps are sorted by key and weights
//! are stored in the order in which operations refer to them.

mod interface;
mod literal;
mod program;

use super::check;
use super::error::{ErrorKind, PackageError, Result, quoted};
use super::schema::model;
use super::weights::{BlobWriter, FILE};
use super::wire::Writer;
use crate::Model;

/// A model as the bytes of its two files.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedModel {
    /// The content of `model.mlmodel`.
    pub model: Vec<u8>,
    /// The content of `weight.bin`; empty if there are no weights.
    pub weights: Vec<u8>,
}

/// Encodes a model in memory, weights included.
pub fn encode_model(model: &Model) -> Result<EncodedModel> {
    let mut weights = Vec::new();
    let mut blobs = BlobWriter::new(&mut weights);
    let model = encode(model, &mut blobs)?;
    blobs.finish().map_err(|e| PackageError::io(FILE.as_ref(), "write", &e))?;
    Ok(EncodedModel { model, weights })
}

/// Encodes a model and stores its weights.
pub(super) fn encode(model: &Model, blobs: &mut BlobWriter<'_>) -> Result<Vec<u8>> {
    check::spec_version(model.spec_version).map_err(model_error)?;
    check::program_version(model.program.version).map_err(model_error)?;
    check::interfaces(&model.interfaces, &model.program).map_err(model_error)?;
    let mut out = Writer::default();
    out.int64(model::SPECIFICATION_VERSION, model.spec_version.into());
    out.message(model::DESCRIPTION, |out| interface::description(out, model))?;
    out.message(model::ML_PROGRAM, |out| program::program(out, &model.program, blobs))?;
    Ok(out.into_bytes())
}

fn model_error(message: impl Into<String>) -> PackageError {
    PackageError::new(ErrorKind::Model, message)
}

/// Items of a map in the order of their keys, which must be distinct.
fn sorted<'m, T>(items: &'m [T], key: impl Fn(&T) -> &str, what: &str) -> Result<Vec<&'m T>> {
    let mut sorted: Vec<&T> = items.iter().collect();
    sorted.sort_by(|a, b| key(a).cmp(key(b)));
    match sorted.windows(2).find(|pair| key(pair[0]) == key(pair[1])) {
        Some(pair) => Err(model_error(format!("{what} {} occurs twice", quoted(key(pair[0]))))),
        None => Ok(sorted),
    }
}

/// As [`sorted`], for keys that are names and so must not be empty.
fn sorted_by_name<'m, T>(items: &'m [T], name: impl Fn(&T) -> &str, what: &str) -> Result<Vec<&'m T>> {
    match items.iter().any(|item| name(item).is_empty()) {
        true => Err(model_error(format!("{what} has no name"))),
        false => sorted(items, name, what),
    }
}
