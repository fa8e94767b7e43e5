//! An export of the model as it is, on which something is measured before the export that is wanted.

use std::path::Path;
use std::sync::Arc;

use super::error::ExportError;
use super::wishes::{Chunking, Wishes};
use super::{Progress, Request, export};
use crate::bundle::{Bundle, KvForm};
use crate::checkpoint;
use crate::generate::{Input, Text};
use crate::model;
use crate::package::Package;
use crate::runtime::{self, LoadOptions, Loaded, Runtime};

/// What an error of a measurement is made from.
pub(super) type Failed = fn(&str) -> ExportError;

/// The model as it is.
pub(super) struct Trial {
    pub(super) bundle: Bundle,
    /// Whether its head is its embedding.
    pub(super) is_tied: bool,
}

/// Exports the model as it is, a layer to a package, for texts of at most so many tokens.
pub(super) fn export_layers(
    request: &Request,
    scratch: &Path,
    length: usize,
    progress: &dyn Progress,
) -> Result<Trial, ExportError> {
    let (layers, is_tied) = {
        let checkpoint = checkpoint::open(&request.checkpoint)?;
        let decoder = model::build(&checkpoint)?;
        (decoder.layers.len(), decoder.head.tied)
    };
    let wishes = Wishes {
        kv: Some(vec![KvForm::Io]),
        enumerate_shapes: Some(vec![length]),
        chunks: Some(Chunking::Count(layers)),
        ..Wishes::default()
    };
    let request = Request {
        output: scratch.join("layers"),
        wishes,
        overwrite: false,
        training_lengths: None,
        automatic: None,
        calibration: None,
        ..request.clone()
    };
    Ok(Trial { bundle: export(&request, progress)?, is_tied })
}

/// The packages of a bundle, in order.
pub(super) fn packages(bundle: &Bundle) -> Result<Vec<Package>, ExportError> {
    let open = |name: &str| Package::open(bundle.path(name)).map_err(ExportError::from);
    bundle.manifest().chunks.iter().map(|chunk| open(&chunk.file.name)).collect()
}

/// A package on the CPU runtime.
pub(super) fn load(package: &Package, failed: Failed) -> Result<Arc<dyn Loaded>, ExportError> {
    load_with(package, &LoadOptions::default(), failed)
}

/// A package on the CPU runtime, whose observers see every value.
pub(super) fn load_shown(package: &Package, failed: Failed) -> Result<Arc<dyn Loaded>, ExportError> {
    load_with(package, &LoadOptions { fuse: false, ..LoadOptions::default() }, failed)
}

fn load_with(
    package: &Package,
    options: &LoadOptions,
    failed: Failed,
) -> Result<Arc<dyn Loaded>, ExportError> {
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
