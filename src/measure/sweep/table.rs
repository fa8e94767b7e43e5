//! Configurations side by side: speed-up against a named one, memory, size; and which is best, and why.

use serde::Serialize;

use super::trade_off::{TradeOff, frontier};
use crate::report::{Metric, Place, Report};
use anemeter_base::hardware::ProductionMix;
use anemeter_base::vocabulary::{ComputeUnits, KvForm, RuntimeName};

/// Format and version of a sweep's result.
pub const SCHEMA: &str = "anemeter.sweep_report/1";

/// A sweep that was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sweep {
    /// Format and version.
    pub schema: &'static str,
    /// The sequence length that all are compared at.
    pub seq_len: Option<usize>,
    /// The case of the workload `predict` that all are compared at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// Name of the row that others are compared with.
    pub reference: String,
    /// Every configuration that was measured.
    pub rows: Vec<SweepRow>,
    /// Configurations that the runtime cannot run as they are meant.
    pub not_run: Vec<NotRun>,
    /// The fastest that is right, within its limits of quality and within the memory limit.
    pub best: Option<Best>,
}

/// A configuration with its figures; those that were not measured are absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepRow {
    /// Its name.
    pub name: String,
    /// Hardware profile of the machine.
    pub hardware_profile_key: String,
    /// What executed it.
    pub runtime: RuntimeName,
    /// Where operations could run.
    pub compute_units: ComputeUnits,
    /// Form of the KV cache.
    pub kv_form: Option<KvForm>,
    /// Threads, if the runtime has a choice.
    pub threads: Option<usize>,
    /// Precision of the weights.
    pub precision: String,
    /// Sequences at once.
    pub batch: usize,
    /// Time to the first token, p50, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// Tokens per second, p50.
    pub tokens_per_second: Option<f64>,
    /// Time of a prediction, p50, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Predictions per second, p50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predictions_per_second: Option<f64>,
    /// Tokens or predictions per second against the reference.
    pub speed_up: Option<f64>,
    /// The reference's time to the first token against this one.
    pub prefill_speed_up: Option<f64>,
    /// The most memory that any launch had.
    pub memory_peak_bytes: Option<f64>,
    /// Tokens per second and gigabyte of peak memory.
    pub tokens_per_second_per_gb: Option<f64>,
    /// Bytes of the packages.
    pub package_bytes: u64,
    /// Bytes of the reference's packages against these.
    pub compression_ratio: f64,
    /// Launches that failed.
    pub failed_launches: usize,
    /// Mean KL divergence from the checkpoint, in nats; absent if nobody verified the packages.
    pub kl: Option<f64>,
    /// Share of positions with the checkpoint's likeliest token.
    pub top1: Option<f64>,
    /// The largest mean KL divergence that it may have, as `verify` was told.
    pub kl_limit: Option<f64>,
    /// Perplexity on a text.
    pub perplexity: Option<f64>,
    /// Digest of the text.
    pub text_digest: Option<String>,
    /// Digest of the checkpoint that it was exported from.
    pub checkpoint_digest: String,
    /// Whether somebody verified the packages.
    pub is_verified: bool,
    /// Why it cannot be the best.
    pub excluded: Option<String>,
    /// Whether no other is at least as small, as fast and as near to its checkpoint.
    pub on_frontier: bool,
}

/// A configuration that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotRun {
    /// Its name.
    pub name: String,
    /// Why it was left out.
    pub reason: String,
}

/// The best configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Best {
    /// Its name.
    pub name: String,
    /// Why it is the best.
    pub reason: String,
}

impl Sweep {
    /// Puts reports side by side at the sequence length that occurs most among those that all have, or at their first common
    /// case. `None` if they
    /// have none in common or the reference is not among them.
    pub fn new(
        reports: &[(String, Report)],
        reference: &str,
        mix: &ProductionMix,
        limit_bytes: Option<f64>,
    ) -> Option<Sweep> {
        let place = common_place(reports, mix)?;
        let (_, base) = reports.iter().find(|(name, _)| name == reference)?;
        let mut rows: Vec<_> = reports.iter().map(|(name, report)| row(name, report, base, &place)).collect();
        let is_best = frontier(&rows.iter().map(SweepRow::trade_off).collect::<Vec<_>>());
        rows.iter_mut().zip(is_best).for_each(|(row, is_best)| row.on_frontier = is_best);
        let best = best(&rows, limit_bytes);
        let reference = reference.to_owned();
        let (seq_len, case) = (place.seq_len(), place.case().map(str::to_owned));
        Some(Sweep { schema: SCHEMA, seq_len, case, reference, rows, not_run: Vec::new(), best })
    }

    /// Every configuration by what it takes and what it gives.
    pub fn trade_offs(&self) -> Vec<TradeOff> {
        self.rows.iter().map(SweepRow::trade_off).collect()
    }

    /// The sweep with what was left out of it.
    pub fn without(self, not_run: Vec<NotRun>) -> Sweep {
        Sweep { not_run, ..self }
    }
}

impl SweepRow {
    /// Tokens or predictions per second.
    fn rate(&self) -> Option<f64> {
        self.tokens_per_second.or(self.predictions_per_second)
    }

    fn trade_off(&self) -> TradeOff {
        TradeOff {
            name: self.name.clone(),
            package_bytes: self.package_bytes,
            rate: self.rate(),
            is_of_predictions: self.predictions_per_second.is_some(),
            kl: self.kl,
            kl_limit: self.kl_limit,
            perplexity: self.perplexity,
            checkpoint_digest: self.checkpoint_digest.clone(),
            excluded: self.excluded.clone(),
        }
    }
}

fn common_place(reports: &[(String, Report)], mix: &ProductionMix) -> Option<Place> {
    let (_, first) = reports.first()?;
    let is_common =
        |place: &Place| reports.iter().all(|(_, report)| report.workload.places().contains(place));
    let common = first.workload.places().into_iter().filter(is_common);
    // Cases weigh the same, so that the first is taken.
    let weight = |place: &Place| place.seq_len().map_or(0.0, |seq_len| mix.weight(seq_len));
    common.rev().max_by(|a, b| weight(a).total_cmp(&weight(b)))
}

fn row(name: &str, report: &Report, base: &Report, place: &Place) -> SweepRow {
    let p50 = |report: &Report, metric| report.figure_at(metric, Some(place))?.summary.percentiles.p50;
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?).filter(|ratio| ratio.is_finite());
    let (ttft_ms, tps) = (p50(report, Metric::Ttft), p50(report, Metric::Tps));
    let predictions = p50(report, Metric::PredictionRate);
    let speed_up = ratio(tps, p50(base, Metric::Tps));
    let peak = report.figure(Metric::MemoryPeak, None).map(|figure| figure.summary.maximum);
    SweepRow {
        name: name.to_owned(),
        hardware_profile_key: report.header.hardware_profile_key.clone(),
        runtime: report.runtime.name,
        compute_units: report.runtime.compute_units,
        kv_form: report.subject.kv_form,
        threads: report.runtime.threads,
        precision: report.subject.precision.clone(),
        batch: report.workload.batch,
        ttft_ms,
        tokens_per_second: tps,
        latency_ms: p50(report, Metric::Latency),
        predictions_per_second: predictions,
        speed_up: speed_up.or_else(|| ratio(predictions, p50(base, Metric::PredictionRate))),
        prefill_speed_up: ratio(p50(base, Metric::Ttft), ttft_ms),
        memory_peak_bytes: peak,
        tokens_per_second_per_gb: ratio(tps, peak.map(|bytes| bytes / 1e9)),
        package_bytes: report.subject.package_bytes,
        compression_ratio: base.subject.package_bytes as f64 / report.subject.package_bytes.max(1) as f64,
        failed_launches: report.failures().count(),
        kl: report.quality_loss().and_then(|loss| loss.kl),
        top1: report.quality_loss().map(|loss| loss.top1),
        kl_limit: report.quality_loss().map(|loss| loss.limits.kl),
        perplexity: report.perplexity(),
        text_digest: report.text_digest().map(str::to_owned),
        checkpoint_digest: report.subject.checkpoint_digest.clone(),
        is_verified: report.verified().is_some(),
        excluded: TradeOff::of(name, report, place).excluded,
        on_frontier: false,
    }
}

/// The fastest row that nothing speaks against and that fits into the limit. Batches above one are for offline work and do
/// not compete with interactive rows.
fn best(rows: &[SweepRow], limit_bytes: Option<f64>) -> Option<Best> {
    let smallest_batch = rows.iter().map(|row| row.batch).min()?;
    let interactive = || rows.iter().filter(|row| row.batch == smallest_batch && row.excluded.is_none());
    // What nobody verified may be as lossy as what is excluded: it is the best only among its like.
    let has_verified = interactive().any(|row| row.is_verified);
    let (interactive, unverified): (Vec<&SweepRow>, Vec<&SweepRow>) =
        interactive().partition(|row| row.is_verified || !has_verified);
    let fits = |row: &&&SweepRow| match (row.memory_peak_bytes, limit_bytes) {
        (Some(peak), Some(limit)) => peak <= limit,
        _ => true,
    };
    let speed = |row: &SweepRow| row.rate().unwrap_or(0.0);
    let fastest = |a: &&&SweepRow, b: &&&SweepRow| speed(a).total_cmp(&speed(b));
    let best = interactive.iter().filter(fits).max_by(fastest)?;
    let excluded: Vec<&str> = interactive
        .iter()
        .filter(|row| !fits(row) && speed(row) > speed(best))
        .map(|row| row.name.as_str())
        .collect();
    let what = if best.tokens_per_second.is_some() { "tokens" } else { "predictions" };
    let rate = best.rate()?;
    let decimals = if rate < 100.0 { 1 } else { 0 };
    let mut reason = format!("{rate:.decimals$} {what} per second is the fastest");
    if let Some(limit) = limit_bytes {
        reason += &format!(" within {:.1} GB", limit / 1e9);
    }
    if let Some(kl) = best.kl {
        reason += &format!(", with a KL of {kl:.4} nats");
    }
    if !excluded.is_empty() {
        reason += &format!("; faster but too large: {}", excluded.join(", "));
    }
    let barred = rows.iter().filter(|row| row.excluded.is_some() && speed(row) > speed(best));
    let barred: Vec<&str> = barred.map(|row| row.name.as_str()).collect();
    if !barred.is_empty() {
        reason += &format!("; faster but failed or too lossy: {}", barred.join(", "));
    }
    let unverified = unverified.iter().filter(|row| speed(row) > speed(best));
    let unverified: Vec<&str> = unverified.map(|row| row.name.as_str()).collect();
    if !unverified.is_empty() {
        reason += &format!("; faster but nobody verified it: {}", unverified.join(", "));
    }
    if !best.is_verified {
        reason += "; nobody verified it";
    }
    Some(Best { name: best.name.clone(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    fn named(name: &str, scale: f64, package_bytes: u64, peak: u64) -> (String, Report) {
        let mut launch = testing::launch(0, scale);
        if let Some(memory) = &mut launch.memory {
            memory.peak_bytes = Some(peak);
        }
        let mut report = testing::with_launches(vec![launch]);
        report.subject.package_bytes = package_bytes;
        (name.to_owned(), report)
    }

    fn mix() -> ProductionMix {
        ProductionMix { seq_lens: vec![128, 512], weights: vec![0.25, 0.75] }
    }

    #[test]
    fn rows_are_compared_with_the_reference() {
        let reports = [named("fp16", 1.0, 400, 4_000_000_000), named("int8", 0.5, 200, 2_000_000_000)];
        let sweep = Sweep::new(&reports, "fp16", &mix(), None).unwrap();
        assert_eq!((sweep.seq_len, sweep.rows[0].speed_up), (Some(512), Some(1.0)));
        let int8 = &sweep.rows[1];
        assert!((int8.speed_up.unwrap() - 2.0).abs() < 1e-9);
        assert!((int8.prefill_speed_up.unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(int8.compression_ratio, 2.0);
        let efficiency = int8.tokens_per_second.unwrap() / 2.0;
        assert!((int8.tokens_per_second_per_gb.unwrap() - efficiency).abs() < 1e-9);
        assert_eq!(sweep.best.unwrap().name, "int8");
        assert_eq!(Sweep::new(&reports, "fp32", &mix(), None), None);
        assert_eq!(Sweep::new(&[], "fp32", &mix(), None), None);
    }

    #[test]
    fn predictions_are_compared_by_their_rate() {
        let named = |name: &str, scale| (name.to_owned(), testing::predicted(2, scale));
        let sweep = Sweep::new(&[named("a", 1.0), named("b", 0.5)], "a", &mix(), None).unwrap();
        assert_eq!((sweep.seq_len, sweep.case.as_deref()), (None, Some(testing::CASES[0])));
        let b = &sweep.rows[1];
        assert!((b.speed_up.unwrap() - 2.0).abs() < 1e-9 && b.ttft_ms.is_none() && b.latency_ms.is_some());
        let best = sweep.best.unwrap();
        assert!(best.name == "b" && best.reason.contains("predictions per second"), "{}", best.reason);
    }

    #[test]
    fn the_best_fits_the_limit_and_what_does_not_is_named() {
        let reports = [named("small", 1.0, 100, 1_000_000_000), named("large", 0.5, 400, 9_000_000_000)];
        let best = Sweep::new(&reports, "small", &mix(), Some(2e9)).unwrap().best.unwrap();
        assert_eq!(best.name, "small");
        assert!(best.reason.contains("within 2.0 GB; faster but too large: large"), "{}", best.reason);
        let none = Sweep::new(&reports, "small", &mix(), Some(1.0)).unwrap();
        assert_eq!(none.best, None);
    }

    #[test]
    fn what_is_wrong_or_too_lossy_does_not_win() {
        let lossy = |kl: f64, passed: bool| {
            let (name, mut report) = named("int4", 0.5, 100, 1);
            let mut found = testing::verification();
            (found.passed, found.quality) = (passed, Some(testing::quality_loss()));
            found.quality.as_mut().unwrap().kl = Some(kl);
            report.verification = Some(found);
            let reports = [named("fp16", 1.0, 400, 1), (name, report)];
            Sweep::new(&reports, "fp16", &mix(), None).unwrap()
        };
        assert_eq!(lossy(0.01, true).best.unwrap().name, "int4");
        for sweep in [lossy(0.5, true), lossy(0.01, false)] {
            assert!(!sweep.rows[1].on_frontier && sweep.rows[1].excluded.is_some());
            let best = sweep.best.unwrap();
            assert_eq!(best.name, "fp16");
            assert!(best.reason.contains("faster but failed or too lossy: int4; nobody verified it"));
        }
    }

    #[test]
    fn what_nobody_verified_does_not_win_over_what_is_good() {
        let (name, mut good) = named("int8", 1.0, 200, 1);
        let mut found = testing::verification();
        found.quality = Some(testing::quality_loss());
        good.verification = Some(found);
        let reports = [(name, good), named("int4", 0.5, 100, 1)];
        let best = Sweep::new(&reports, "int8", &mix(), None).unwrap().best.unwrap();
        assert_eq!(best.name, "int8");
        assert!(best.reason.ends_with("; faster but nobody verified it: int4"), "{}", best.reason);
    }

    #[test]
    fn failures_and_larger_batches_do_not_win() {
        let (name, mut offline) = named("batch 4", 0.1, 100, 1);
        offline.workload.batch = 4;
        let mut reports = vec![named("one", 1.0, 100, 1), (name, offline)];
        assert_eq!(Sweep::new(&reports, "one", &mix(), None).unwrap().best.unwrap().name, "one");
        reports[1] = ("failing".to_owned(), testing::report());
        assert_eq!(Sweep::new(&reports, "one", &mix(), None).unwrap().best.unwrap().name, "one");
    }
}
