//! What a verification leaves beside the bundle: `verify.json`.

use crate::bundle::{self, Bundle};
use crate::cli::Result;
use crate::cli::record;
use crate::report::{Record, Verification, VerifiedLengths};
use crate::verify::{Failure as Beyond, Report};
use crate::vocabulary::{KvForm, RuntimeName};

/// What was compared with what.
pub(super) struct Sources {
    /// What executes the bundle.
    pub(super) runtime: RuntimeName,
    /// Digests of what it executes, as that is on disk.
    pub(super) packages: Vec<String>,
    /// The checkpoint as it is on disk.
    pub(super) checkpoint: bundle::Checkpoint,
}

impl Sources {
    pub(super) fn new(
        bundle: &Bundle,
        runtime: RuntimeName,
        checkpoint: bundle::Checkpoint,
    ) -> Result<Sources> {
        Ok(Sources { runtime, packages: bundle.digests_on_disk(runtime)?, checkpoint })
    }

    /// What is not as `export.json` says.
    pub(super) fn remarks(&self, bundle: &Bundle) -> Vec<String> {
        let manifest = bundle.manifest();
        let files = manifest.files_of(self.runtime).zip(&self.packages);
        let changed = files.filter(|(file, found)| file.digest != **found).map(|(file, found)| {
            let (name, written) = (&file.name, &file.digest);
            format!("{name} has the digest {found}; export.json says {written}, so it has been changed")
        });
        let mut remarks: Vec<String> = changed.collect();
        let found = &self.checkpoint;
        if let Some(expected) = manifest.checkpoint.as_ref().filter(|of| of.digest != found.digest) {
            remarks.push(format!(
                "the checkpoint {} has the digest {}; the bundle was exported from {} with {}",
                found.name, found.digest, expected.name, expected.digest
            ));
        }
        remarks
    }

    /// Writes the record.
    pub(super) fn write(self, bundle: &Bundle, report: &Report, numerics: &str) -> Result<()> {
        let is_exported =
            bundle.manifest().checkpoint.as_ref().is_some_and(|of| of.digest == self.checkpoint.digest);
        let cosines = report.cells.iter().map(|cell| cell.summary.cosine_min);
        let drifts = report.drift.iter().filter_map(|drift| drift.summary.cosine_min);
        let record = Verification {
            schema: Verification::SCHEMA.to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            package_digests: self.packages,
            checkpoint_digest: self.checkpoint.digest,
            checkpoint_is_the_exported_one: is_exported,
            passed: report.is_right(),
            cosine_min: cosines.flatten().reduce(f64::min).filter(|_| report.not_judged.is_none()),
            cosine_limit: report.not_judged.is_none().then_some(report.thresholds.cosine),
            drift_cosine_min: drifts.reduce(f64::min),
            nan: report.cells.iter().map(|cell| cell.summary.nan).sum(),
            inf: report.cells.iter().map(|cell| cell.summary.inf).sum(),
            reference: report.reference.clone(),
            numerics: numerics.to_owned(),
            compared: compared(report),
            prompts: report.prompts,
            positions: report.cells.iter().map(|cell| cell.summary.positions).sum(),
            failures: report.failures.iter().map(in_words).collect(),
            not_judged: report.not_judged.clone(),
            quality: report.quality.clone(),
        };
        record::write(bundle, &record)
    }
}

/// A record about the packages as they are on disk, of which nothing was found yet.
pub(super) fn package_record(bundle: &Bundle, runtime: RuntimeName) -> Result<Verification> {
    Ok(Verification {
        schema: Verification::SCHEMA.to_owned(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        package_digests: bundle.digests_on_disk(runtime)?,
        checkpoint_digest: String::new(),
        checkpoint_is_the_exported_one: false,
        passed: false,
        cosine_min: None,
        cosine_limit: None,
        drift_cosine_min: None,
        nan: 0,
        inf: 0,
        reference: String::new(),
        numerics: String::new(),
        compared: Vec::new(),
        prompts: 0,
        positions: 0,
        failures: Vec::new(),
        not_judged: None,
        quality: None,
    })
}

/// Forms and lengths in the order of the report.
fn compared(report: &Report) -> Vec<VerifiedLengths> {
    let mut compared: Vec<VerifiedLengths> = Vec::new();
    let mut add = |kv: KvForm, seq_len: usize| match compared.iter_mut().find(|of| of.kv == kv) {
        Some(of) if of.seq_lens.contains(&seq_len) => {}
        Some(of) => of.seq_lens.push(seq_len),
        None => compared.push(VerifiedLengths { kv, seq_lens: vec![seq_len] }),
    };
    report.cells.iter().for_each(|cell| add(cell.kv, cell.seq_len));
    compared
}

/// Something beyond its threshold as people read it.
pub(super) fn in_words(failure: &Beyond) -> String {
    let found = failure.found.map_or_else(|| "not computable".to_owned(), |found| format!("{found}"));
    format!("{}: {} is {found}, limit {}", failure.at, failure.metric, failure.limit)
}
