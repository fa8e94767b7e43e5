//! Chunks as files of a bundle: compressed, checked, and written as packages, Core AI assets or both.

use std::path::Path;

use super::about::ModelCard;
use super::compressed::Compressed;
use super::coreai::AssetWriter;
use super::options::ResolvedOptions;
use super::phases::Phases;
use super::{ExportError, Progress, Request, describe};
use crate::bundle;
use crate::compress::{self, Solutions};
use crate::lower;
use crate::mil::verify::{Verified, verify};
use crate::mil::widen::widened;
use crate::package::{WriteOptions, write_watched};
use crate::vocabulary::{Activations, ModelFormat};

/// Where chunks are written, and how.
pub(super) struct Writing<'a> {
    request: &'a Request,
    folder: &'a Path,
    resolved: &'a ResolvedOptions,
    card: ModelCard,
    assets: Option<AssetWriter<'a>>,
}

impl<'a> Writing<'a> {
    /// Into a staged folder. Model files say what the card says.
    pub(super) fn new(
        request: &'a Request,
        folder: &'a Path,
        resolved: &'a ResolvedOptions,
        card: ModelCard,
    ) -> Writing<'a> {
        let assets = resolved
            .formats
            .contains(&ModelFormat::CoreAi)
            .then(|| AssetWriter { folder, metadata: card.of_asset() });
        Writing { request, folder, resolved, card, assets }
    }

    /// Compresses, checks and writes chunks.
    pub(super) fn chunks(
        &self,
        chunks: Vec<lower::Chunk>,
        solutions: &Solutions,
        phases: &mut Phases,
        progress: &dyn Progress,
    ) -> Result<(Vec<bundle::Chunk>, Compressed), ExportError> {
        let mut described = Vec::with_capacity(chunks.len());
        let mut compressed = Compressed::default();
        for chunk in chunks {
            let bytes = describe::weight_bytes(&chunk.model);
            let lower::Chunk { name, layers, positions, mut model, .. } = chunk;
            model.metadata = self.card.of_package();
            let (model, compression) = compress::apply_solved(model, &self.resolved.precision, solutions)?;
            let model = match self.resolved.activations {
                Activations::Fp16 => model,
                Activations::Fp32 => widened(model),
            };
            let model = phases.time("check", || verify(model))?;
            let package = match self.resolved.formats.contains(&ModelFormat::CoreMl) {
                true => Some(self.package(&name, (&model, bytes), phases, progress)?),
                false => None,
            };
            let asset = match &self.assets {
                Some(writer) => Some(writer.write(&name, &model, bytes, phases, progress)?),
                None => None,
            };
            let file = package.or_else(|| asset.as_ref().map(|asset| asset.file.clone()));
            described.extend(file.map(|file| bundle::Chunk {
                asset,
                ..describe::chunk_of(file, &layers, &positions, model.model())
            }));
            compressed.add(&compression).map_err(|e| ExportError::io(&self.request.output, &e))?;
        }
        Ok((described, compressed))
    }

    fn package(
        &self,
        name: &str,
        (model, bytes): (&Verified, u64),
        phases: &mut Phases,
        progress: &dyn Progress,
    ) -> Result<bundle::File, ExportError> {
        let file = format!("{name}.mlpackage");
        progress.began(&file, Some(bytes));
        let staged = WriteOptions { staged: true, ..WriteOptions::default() };
        let summary = write_watched(model, &self.folder.join(&file), staged, progress)?;
        phases.wrote(&file, (summary.writing, summary.syncing), summary.bytes);
        Ok(describe::package(file, &summary))
    }
}
