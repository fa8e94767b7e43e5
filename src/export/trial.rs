//! An export of the model as it is, on which something is measured before the export that is wanted.

use std::path::Path;
use std::sync::Arc;

use super::error::ExportError;
use super::options::{Chunking, ExportOptions};
use super::phases::Phases;
use super::{Measured, PrecisionPlan, Progress, Request, Source, export_as};
use crate::bundle::Bundle;
use crate::generate::{Input, Text};
use crate::package::Package;
use crate::runtime::{self, LoadOptions, LoadedModel, Runtime};
use crate::vocabulary::KvForm;

/// What an error of a measurement is made from.
pub(super) type Failed = fn(&str) -> ExportError;

/// Exports the model as it is, a layer to a package, for texts of at most so many tokens.
pub(super) fn export_layers(
    request: &Request,
    source: &Source,
    (scratch, length): (&Path, usize),
    progress: &dyn Progress,
) -> Result<Bundle, ExportError> {
    let options = ExportOptions {
        kv: Some(vec![KvForm::Io]),
        enumerate_shapes: Some(vec![length]),
        chunks: Some(Chunking::Count(source.decoder.layers.len())),
        ..ExportOptions::default()
    };
    let request = Request {
        output: scratch.join("layers"),
        options,
        overwrite: false,
        training_lengths: None,
        config: None,
        precision: PrecisionPlan::Fixed,
        ..request.clone()
    };
    export_as(&request, source, Measured::default(), Phases::default(), progress)
}

/// The packages of a bundle, in order.
pub(super) fn packages(bundle: &Bundle) -> Result<Vec<Package>, ExportError> {
    let open = |name: &str| Package::open(bundle.path(name)).map_err(ExportError::from);
    bundle.manifest().chunks.iter().map(|chunk| open(&chunk.file.name)).collect()
}

/// A package on the CPU runtime.
pub(super) fn load(package: &Package, failed: Failed) -> Result<Arc<dyn LoadedModel>, ExportError> {
    load_with(package, &LoadOptions::default(), failed)
}

/// A package on the CPU runtime, whose observers see every value.
pub(super) fn load_shown(package: &Package, failed: Failed) -> Result<Arc<dyn LoadedModel>, ExportError> {
    load_with(package, &LoadOptions { fuse: false, ..LoadOptions::default() }, failed)
}

fn load_with(
    package: &Package,
    options: &LoadOptions,
    failed: Failed,
) -> Result<Arc<dyn LoadedModel>, ExportError> {
    runtime::cpu().load(package, options).map_err(|e| failed(&e.to_string()))
}

/// The tokens of a text, of which there must be so many.
pub(super) fn tokens(
    bundle: &Bundle,
    text: &str,
    needed: usize,
    failed: Failed,
) -> Result<Vec<u32>, ExportError> {
    let tokenizer = Text::open(bundle, None).map_err(|e| failed(&e.to_string()))?;
    let tokenizer = tokenizer.ok_or_else(|| failed("needs a tokenizer, and the checkpoint has none"))?;
    let ids = tokenizer.tokens(Input::Raw(text), usize::MAX).map_err(|e| failed(&e.to_string()))?;
    match ids.len() >= needed {
        true => Ok(ids),
        false => Err(failed(&format!("needs a text of {needed} tokens, this one has {}", ids.len()))),
    }
}
