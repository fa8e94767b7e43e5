//! A sweep for people: which configuration is best and why, all of them side by side, and what was left out.

use super::number::{ABSENT, digits};
use super::table::{Table, texts};
use crate::report::{Place, QualityFigure, Report};
use crate::sweep::{NotRun, Sweep, SweepRow};
use anemeter_base::text::visible;

/// The best configuration and the reason, or that there is none.
pub fn best(sweep: &Sweep) -> String {
    match &sweep.best {
        Some(best) => visible(&format!("best: {}: {}", best.name, best.reason)),
        None => "best: none is right, good enough and within the memory limit".to_owned(),
    }
}

/// What the configurations have in common.
pub fn sweep_subtitle(sweep: &Sweep) -> String {
    let place = Place::stated(sweep.seq_len, sweep.case.as_ref());
    let place = place.map(|place| place.in_words().to_string()).unwrap_or_default();
    let mut parts = vec![format!("{place}, compared with {}", sweep.reference)];
    if let Some(first) = sweep.rows.first() {
        if !differ(sweep, |row| row.compute_units) {
            parts.push(format!("compute units {}", first.compute_units));
        }
        if !differ(sweep, |row| row.batch) {
            parts.push(format!("batch {}", first.batch));
        }
        parts.push(format!("{} on {}", first.runtime, first.hardware_profile_key));
    }
    visible(&parts.join(" · "))
}

/// The models that were measured, and how many configurations of them.
pub(super) fn sweep_title(reports: &[Report]) -> String {
    let mut names: Vec<&str> = reports.iter().map(|report| report.subject.name.as_str()).collect();
    names.dedup();
    format!("{}: {} configurations", names.join(", "), reports.len())
}

/// All tables of a sweep that have rows.
pub fn sweep_tables(sweep: &Sweep) -> Vec<Table> {
    let excluded = |row: &SweepRow| Some(vec![visible(&row.name), visible(row.excluded.as_ref()?)]);
    let excluded: Vec<_> = sweep.rows.iter().filter_map(excluded).collect();
    let not_run = sweep.not_run.iter().map(|NotRun { name, reason }| vec![visible(name), visible(reason)]);
    let left_out = ["configuration", "why"];
    let all = [
        configurations(sweep),
        texts("Not eligible", &left_out, excluded),
        texts("Not run", &left_out, not_run.collect()),
    ];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// A column of the table.
struct ColumnOf {
    heading: &'static str,
    is_shown: fn(&Sweep) -> bool,
    cell: fn(&SweepRow, &Sweep) -> String,
}

const fn always(heading: &'static str, cell: fn(&SweepRow, &Sweep) -> String) -> ColumnOf {
    ColumnOf { heading, is_shown: |_| true, cell }
}

/// A column of sweeps that generate text.
const fn of_text(heading: &'static str, cell: fn(&SweepRow, &Sweep) -> String) -> ColumnOf {
    ColumnOf { heading, is_shown: |sweep| sweep.case.is_none(), cell }
}

/// A column of sweeps of single predictions.
const fn of_case(heading: &'static str, cell: fn(&SweepRow, &Sweep) -> String) -> ColumnOf {
    ColumnOf { heading, is_shown: |sweep| sweep.case.is_some(), cell }
}

const COLUMNS: &[ColumnOf] = &[
    always("configuration", |row, _| visible(&row.name)),
    // Early, so that a narrow window does not hide it.
    always("decision", |row, sweep| decision(row, sweep).to_owned()),
    always("precision", |row, _| visible(&row.precision)),
    ColumnOf {
        heading: "units",
        is_shown: |sweep| differ(sweep, |row| row.compute_units),
        cell: |row, _| row.compute_units.to_string(),
    },
    ColumnOf {
        heading: ">batch",
        is_shown: |sweep| differ(sweep, |row| row.batch),
        cell: |row, _| row.batch.to_string(),
    },
    always(">package MB", |row, _| digits(row.package_bytes as f64 / 1e6)),
    always(">smaller", |row, _| times(Some(row.compression_ratio))),
    of_case(">latency p50 ms", |row, _| number(row.latency_ms)),
    of_case(">predictions/s", |row, _| number(row.predictions_per_second)),
    of_text(">TPS p50 tok/s", |row, _| number(row.tokens_per_second)),
    of_case(">speed-up", |row, _| times(row.speed_up)),
    of_text(">TPS speed-up", |row, _| times(row.speed_up)),
    of_text(">TTFT p50 ms", |row, _| number(row.ttft_ms)),
    of_text(">TTFT speed-up", |row, _| times(row.prefill_speed_up)),
    always(">peak memory MB", |row, _| number(row.memory_peak_bytes.map(|bytes| bytes / 1e6))),
    of_text(">KL nats", |row, _| or_dash(row.kl, |kl| format!("{kl:.4}"))),
    of_text(">top-1", |row, _| or_dash(row.top1, |share| QualityFigure::Top1.shown(share))),
    of_text(">perplexity", |row, _| or_dash(row.perplexity, |perplexity| format!("{perplexity:.3}"))),
    of_text(">perplexity change", |row, sweep| {
        or_dash(increase(row, sweep), |pct| QualityFigure::Perplexity.shown(pct))
    }),
];

fn configurations(sweep: &Sweep) -> Table {
    let shown: Vec<&ColumnOf> = COLUMNS.iter().filter(|column| (column.is_shown)(sweep)).collect();
    let headings: Vec<&str> = shown.iter().map(|column| column.heading).collect();
    let rows = sweep.rows.iter().map(|row| shown.iter().map(|column| (column.cell)(row, sweep)).collect());
    Table::new(&headings).titled("Configurations", notes(sweep)).with(rows)
}

/// What to know of the figures.
fn notes(sweep: &Sweep) -> String {
    let mut notes = vec![
        "KL and top-1 are against the checkpoint, as `verify` found them; a dash means that nobody measured it. On the \
         frontier is what no other beats in size, speed and KL together."
            .to_owned(),
    ];
    if differ(sweep, |row| row.checkpoint_digest.clone()) {
        notes.push(
            "The configurations come from different checkpoints, each with a KL against its own: compare perplexity \
             instead."
                .to_owned(),
        );
    }
    let scored = sweep.rows.iter().filter_map(|row| row.text_digest.as_ref());
    if scored.clone().zip(scored.skip(1)).any(|(a, b)| a != b) {
        notes.push("Perplexities are of different texts and cannot be compared.".to_owned());
    }
    notes.join(" ")
}

/// By how many per cent perplexity is more than that of the reference, on the same text.
fn increase(row: &SweepRow, sweep: &Sweep) -> Option<f64> {
    let base = sweep.rows.iter().find(|base| base.name == sweep.reference)?;
    if base.text_digest != row.text_digest {
        return None;
    }
    Some((row.perplexity? / base.perplexity? - 1.0) * 100.0)
}

fn decision(row: &SweepRow, sweep: &Sweep) -> &'static str {
    let is_best = sweep.best.as_ref().is_some_and(|best| best.name == row.name);
    match (is_best, row.excluded.is_some(), row.on_frontier) {
        (true, ..) => "best",
        (_, true, _) => "not eligible",
        (_, _, true) => "on the frontier",
        _ => "",
    }
}

fn differ<T: PartialEq>(sweep: &Sweep, of: impl Fn(&SweepRow) -> T) -> bool {
    sweep.rows.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]))
}

fn number(value: Option<f64>) -> String {
    or_dash(value, digits)
}

fn times(value: Option<f64>) -> String {
    or_dash(value, |value| format!("{value:.2}x"))
}

fn or_dash(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), shown)
}

#[cfg(test)]
pub(in crate::render) mod testing {
    use super::*;
    use crate::report::testing;
    use anemeter_base::hardware::ProductionMix;

    /// Four precisions: one that is good, one that is too lossy, one that nobody verified.
    pub(in crate::render) fn precisions() -> (Sweep, Vec<Report>) {
        let of = |precision: &str, scale: f64, bytes: u64, kl: Option<f64>| {
            let mut report = testing::with_launches(vec![testing::launch(0, scale)]);
            (report.subject.precision, report.subject.package_bytes) = (precision.to_owned(), bytes);
            let mut found = testing::verification();
            found.package_digests.clone_from(&report.subject.package_digests);
            let mut loss = testing::quality_loss();
            if let Some(text) = &mut loss.text {
                text.packages = text.checkpoint * (1.0 + kl.unwrap_or(0.0));
            }
            loss.kl = kl;
            found.quality = Some(loss);
            report.verification = kl.map(|_| found);
            report
        };
        let reports = vec![
            of("fp16", 1.0, 270_000_000, Some(0.0)),
            of("int8", 0.5, 136_000_000, Some(0.011)),
            of("int4", 0.4, 90_000_000, Some(0.4)),
            of("lut6:group=16", 0.6, 111_000_000, None),
        ];
        let names = ["fp16", "small <b>", "int4", "lut6"].map(str::to_owned);
        let named: Vec<(String, Report)> = names.into_iter().zip(reports.clone()).collect();
        let mix = ProductionMix { seq_lens: vec![128, 512], weights: vec![0.25, 0.75] };
        (Sweep::new(&named, "fp16", &mix, Some(8e9)).expect("the reference is there"), reports)
    }
}

#[cfg(test)]
mod tests {
    use super::super::written;
    use super::*;

    fn shown(sweep: &Sweep) -> String {
        let tables: String = sweep_tables(sweep).iter().map(written).collect();
        format!("{}\n{}\n\n{tables}", best(sweep), sweep_subtitle(sweep))
    }

    #[test]
    fn a_decision_reads_well() {
        insta::assert_snapshot!(shown(&testing::precisions().0));
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let (mut sweep, _) = testing::precisions();
        assert!(!shown(&sweep).contains("different"));
        sweep.rows[1].checkpoint_digest = "xxh3:77".to_owned();
        sweep.rows[2].text_digest = Some("xxh3:88".to_owned());
        let text = shown(&sweep);
        assert!(
            text.contains("come from different checkpoints") && text.contains("of different texts"),
            "{text}"
        );
        assert_eq!(increase(&sweep.rows[2], &sweep), None);
    }

    #[test]
    fn what_differs_has_a_column() {
        let (mut sweep, _) = testing::precisions();
        let has_batches = |sweep: &Sweep| sweep_tables(sweep)[0].columns.iter().any(|c| c.heading == "batch");
        assert!(!has_batches(&sweep));
        sweep.rows[1].batch = 4;
        assert!(has_batches(&sweep));
        assert!(!sweep_subtitle(&sweep).contains("batch"));
        sweep.best = None;
        assert_eq!(best(&sweep), "best: none is right, good enough and within the memory limit");
    }
}
