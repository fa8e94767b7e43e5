//! What a bundle loses against its checkpoint, and what it is compared with to know whether it is right.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::prompts::read;
use super::{Args, driver, oracle, positions};
use crate::bundle::{Bundle, Manifest, digest_text};
use crate::checkpoint::Checkpoint;
use crate::cli::output::Output;
use crate::cli::verbosity::Steps;
use crate::cli::{Failure, Result};
use crate::generate::{Input, Text};
use crate::render::Table;
use crate::report::{QualityLimits, QualityLoss, TextLoss};
use crate::verify::{self, Candidate, Options, Oracle, Report, StoredWeights, TeacherForced};
use crate::vocabulary::KvForm;

/// Weights that are named if too much is lost.
const NAMED: usize = 5;

/// What is compared with what.
pub(super) struct Comparison<'a> {
    pub(super) args: &'a Args,
    pub(super) bundle: &'a Bundle,
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) stored: &'a StoredWeights,
    pub(super) prompts: &'a [Vec<u32>],
    pub(super) options: &'a Options,
}

impl Comparison<'_> {
    /// Whether the packages are right: their logits against those of a reference with their own weights.
    pub(super) fn right(&self, candidates: &mut [Box<dyn Candidate>]) -> Result<Report> {
        let positions = positions(candidates, self.prompts, self.options.tokens);
        if self.stored.are_unknown() {
            let not_judged = "the names of compressed weights are not kept in Core AI assets; logits were compared with the \
                              checkpoint's (export `coreml,coreai` to have the weights of the packages taken)";
            return self.with_other_weights(not_judged.to_owned(), positions, candidates);
        }
        if self.stored.is_empty() {
            let mut reference = oracle::open(self.checkpoint, positions).map_err(Failure::bad_input)?;
            return self.compare(reference.as_mut(), candidates, self.options);
        }
        let mut reference =
            oracle::open_stored(self.checkpoint, self.stored, positions).map_err(Failure::bad_input)?;
        if reference.unplaced.is_empty() {
            let report = self.compare(reference.oracle.as_mut(), candidates, self.options)?;
            return Ok(report.with_misstored(&reference.misstored));
        }
        let not_judged = format!(
            "the reference has no place for {} compressed weights, {} among them; logits were compared with the \
             checkpoint's",
            reference.unplaced.len(),
            reference.unplaced[0]
        );
        // A weight that is not the checkpoint's is wrong, whatever the others are.
        let misstored = std::mem::take(&mut reference.misstored);
        drop(reference);
        Ok(self.with_other_weights(not_judged, positions, candidates)?.with_misstored(&misstored))
    }

    /// Against the checkpoint as it is, which shows what is lost and not what is right.
    fn with_other_weights(
        &self,
        not_judged: String,
        positions: usize,
        candidates: &mut [Box<dyn Candidate>],
    ) -> Result<Report> {
        let mut reference = oracle::open(self.checkpoint, positions).map_err(Failure::bad_input)?;
        let thresholds = self.options.thresholds.clone().of_other_weights();
        let report =
            self.compare(reference.as_mut(), candidates, &Options { thresholds, ..self.options.clone() })?;
        Ok(Report { not_judged: Some(not_judged), ..report })
    }

    /// What the packages lose against the checkpoint, in the first form at one length.
    pub(super) fn lost(
        &self,
        right: &Report,
        (kv, seq_lens): (KvForm, &[usize]),
        (limits, text): (QualityLimits, Option<&Text>),
    ) -> Result<Option<QualityLoss>> {
        let Some(seq_len) = verify::quality_length(seq_lens, self.prompts, self.options.tokens) else {
            return Ok(None);
        };
        let ids = self.args.text.as_deref().map(|path| self.text(path, text)).transpose()?;
        let window = seq_lens.iter().max().copied().unwrap_or(seq_len);
        let is_compared = self.stored.is_empty() || right.not_judged.is_some();
        if is_compared && ids.is_none() {
            return Ok(verify::quality_loss(&right.cells, (kv, seq_len), limits));
        }
        let mut reference = oracle::open(self.checkpoint, window).map_err(Failure::bad_input)?;
        let loss = match is_compared {
            true => verify::quality_loss(&right.cells, (kv, seq_len), limits),
            false => self.compared(reference.as_mut(), (kv, seq_len), limits)?,
        };
        let text = ids.map(|ids| self.text_loss(reference.as_mut(), (kv, window), ids)).transpose()?;
        Ok(loss.map(|loss| QualityLoss { text, ..loss }))
    }

    fn compared(
        &self,
        reference: &mut dyn Oracle,
        (kv, seq_len): (KvForm, usize),
        limits: QualityLimits,
    ) -> Result<Option<QualityLoss>> {
        let driver = driver(self.args, self.bundle, Some(kv), self.args.numerics_of(&[self.bundle]))?;
        let candidate = TeacherForced::new(driver, Some(&[seq_len])).map_err(Failure::bad_input)?;
        let report = self.compare(reference, &mut [Box::new(candidate)], self.options)?;
        Ok(verify::quality_loss(&report.cells, (kv, seq_len), limits))
    }

    /// The first tokens of a text, and its digest.
    fn text(&self, path: &Path, text: Option<&Text>) -> Result<(Vec<u32>, String)> {
        let content = read(path, "is empty", "give running text")?;
        let text = text.ok_or_else(|| {
            Failure::at(path, "is text, and the bundle has no tokenizer")
                .with_help("export a checkpoint that has a tokenizer to score a text")
        })?;
        let mut ids = text.tokens(Input::Raw(&content), usize::MAX)?;
        ids.truncate(self.args.text_tokens as usize);
        Ok((ids, digest_text(xxh3_128(content.as_bytes()))))
    }

    fn text_loss(
        &self,
        reference: &mut dyn Oracle,
        (kv, window): (KvForm, usize),
        (ids, digest): (Vec<u32>, String),
    ) -> Result<TextLoss> {
        let mut driver = driver(self.args, self.bundle, Some(kv), self.args.numerics_of(&[self.bundle]))?;
        let mut bar = Steps::new("scored", "tokens");
        let loss = verify::text_loss(reference, &mut driver, (&ids, digest), window, &mut |done, total| {
            bar.show(done, total);
        });
        bar.finish();
        loss.map_err(Failure::bad_input)
    }

    fn compare(
        &self,
        reference: &mut dyn Oracle,
        candidates: &mut [Box<dyn Candidate>],
        options: &Options,
    ) -> Result<Report> {
        let mut bar = Steps::new("compared", "runs");
        let report = verify::compare(reference, candidates, self.prompts, options, &mut |done, total| {
            bar.show(done, total);
        });
        bar.finish();
        report.map_err(Failure::bad_input)
    }
}

/// What is lost, against its limits; and the weights that lose most if that is too much.
pub(super) fn print(bundle: &Manifest, loss: &QualityLoss, against: &str, out: &mut Output) -> Result<()> {
    out.line(format_args!(
        "\nquality against {against}: {} positions, {} at length {}",
        loss.positions, loss.kv, loss.seq_len
    ))?;
    let mut table = Table::new(&["figure", ">found", ">limit", ""]);
    for check in loss.checks() {
        let figure = check.figure;
        table.row([
            figure.label().to_owned(),
            check.found.map_or_else(|| "-".to_owned(), |found| figure.shown(found)),
            format!("{} {}", if figure.is_at_most() { "≤" } else { "≥" }, figure.shown(check.limit)),
            if check.is_good() { "" } else { "beyond" }.to_owned(),
        ]);
    }
    out.text(table.indented(2))?;
    if let Some(text) = &loss.text {
        let TextLoss { tokens, checkpoint, packages, .. } = text;
        out.line(format_args!("  perplexity of {tokens} tokens: {checkpoint:.4} before, {packages:.4} now"))?;
    }
    match &bundle.compression {
        Some(log) if !loss.is_good() => {
            let worst = log.worst(NAMED).into_iter();
            let named =
                worst.filter_map(|weight| Some(format!("{} ({:.1} dB)", weight.name, weight.snr_db?)));
            out.line(format_args!("  weights that lose most: {}", named.collect::<Vec<_>>().join(", ")))
        }
        _ => Ok(()),
    }
}
