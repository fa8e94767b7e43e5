//! Chunks as Core AI assets.

use std::path::Path;

use super::Progress;
use super::error::ExportError;
use super::phases::Phases;
use crate::bundle::{Asset, AssetFunction, File, asset_digest};
use crate::coreai::asset::{AssetMetadata, write_watched};
use crate::coreai::convert::{self, from_mil};
use crate::mil::verify::Verified;
use crate::package::WriteOptions;

/// Writes the assets of a bundle.
pub(super) struct AssetWriter<'a> {
    /// The folder of the bundle, which is staged.
    pub(super) folder: &'a Path,
    pub(super) metadata: AssetMetadata,
}

impl AssetWriter<'_> {
    /// Writes a chunk.
    pub(super) fn write(
        &self,
        name: &str,
        model: &Verified,
        weight_bytes: u64,
        phases: &mut Phases,
        progress: &dyn Progress,
    ) -> Result<Asset, ExportError> {
        let program = phases.time("convert to aicode", || from_mil(model))?;
        let file = format!("{name}.aimodel");
        progress.began(&file, Some(weight_bytes));
        let staged = WriteOptions { staged: true, ..WriteOptions::default() };
        let summary = write_watched(&program, &self.metadata, &self.folder.join(&file), staged, progress)?;
        phases.wrote(&file, (summary.writing, summary.syncing), summary.bytes);
        let functions = convert::functions(model.model());
        let functions = functions.map(|convert::FunctionShape { name, function, shape }| AssetFunction {
            name,
            function,
            shape,
        });
        Ok(Asset {
            file: File { name: file, bytes: summary.bytes, digest: asset_digest(&summary.sha256) },
            functions: functions.collect(),
        })
    }
}
