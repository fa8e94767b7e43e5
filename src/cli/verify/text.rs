//! The terminal form of a verification.

use std::fmt::Display;

use super::against::print_tensors;
use super::record::in_words;
use super::{layers, quality};
use crate::bundle::Manifest;
use crate::cli::Result;
use crate::cli::output::Output;
use crate::generate::Text;
use crate::render::Table;
use crate::report::QualityLoss;
use crate::verify::{Cell, Difference, Drift, Report, Summary};

/// Where tokens differ.
const PLACE: [&str; 4] = ["kv", ">length", ">prompt", ">position"];

/// More differences than this are not listed one by one.
const LISTED: usize = 20;

pub(super) fn print(
    (bundle, executor): (&Manifest, &str),
    report: &Report,
    (text, against): (Option<&Text>, &str),
    out: &mut Output,
) -> Result<()> {
    let architecture = bundle.architecture.as_ref().map_or("adopted", |architecture| &architecture.name);
    out.line(format_args!("{} ({architecture}, {}) on {executor}", bundle.name, bundle.precision()))?;
    out.line(format_args!("against {}", report.reference))?;
    out.line(format_args!("{} prompts, up to {} tokens after each\n", report.prompts, report.tokens))?;
    out.text(cells(report))?;
    if !report.drift.is_empty() {
        out.line("\nthe same tokens at two lengths")?;
        out.text(drift(report))?;
    }
    out.line("")?;
    greedy(report, text, out)?;
    if !report.tensors.is_empty() {
        print_tensors(&report.tensors, out)?;
    }
    layers::print(&report.layers, report.is_right(), out)?;
    for failure in &report.failures {
        out.line(format_args!("beyond its threshold: {}", in_words(failure)))?;
    }
    if let Some(loss) = &report.quality {
        quality::print(bundle, loss, against, out)?;
    }
    out.line("")?;
    out.line(verdict(report))
}

/// Whether it is right and whether it is good, in a line.
fn verdict(report: &Report) -> String {
    let right = match (&report.not_judged, report.is_right()) {
        (Some(why), true) => format!("not judged, because {why}"),
        (_, true) => "yes".to_owned(),
        (_, false) => "NO".to_owned(),
    };
    let good = match report.quality.as_ref().map(QualityLoss::failures) {
        None => "not measured".to_owned(),
        Some(beyond) if beyond.is_empty() => "yes".to_owned(),
        Some(beyond) => format!("NO: {}", beyond.join("; ")),
    };
    let outcome = if report.passed { "passed" } else { "failed" };
    format!(
        "right (computes what its weights say): {right}\ngood (within the limits of quality): {good}\n{outcome}"
    )
}

const FIGURES: [&str; 9] = [
    ">positions",
    ">cosine min",
    ">KL max",
    ">KL mean",
    ">top-1",
    ">top-5",
    ">max abs",
    ">max rel",
    ">NaN/Inf",
];

fn cells(report: &Report) -> Table {
    let row = |cell: &Cell| figures([&cell.kv, &cell.seq_len, &cell.phase], &cell.summary);
    let headings = [&["kv", ">length", "phase"], &FIGURES[..]].concat();
    Table::new(&headings).with(report.cells.iter().map(row)).indented(2)
}

fn drift(report: &Report) -> Table {
    let row = |drift: &Drift| figures([&drift.kv, &drift.seq_len, &drift.against], &drift.summary);
    let headings = [&["kv", ">length", ">against"], &FIGURES[..]].concat();
    Table::new(&headings).with(report.drift.iter().map(row)).indented(2)
}

/// What was compared and how alike it is.
fn figures(compared: [&dyn Display; 3], summary: &Summary) -> Vec<String> {
    let optional = |value: Option<f64>, shown: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), shown);
    let figures = [
        summary.positions.to_string(),
        optional(summary.cosine_min, |value| format!("{value:.8}")),
        optional(summary.kl_max, |value| format!("{value:.2e}")),
        optional(summary.kl_mean, |value| format!("{value:.2e}")),
        format!("{:.2} %", summary.top1 * 100.0),
        format!("{:.2} %", summary.top5 * 100.0),
        format!("{:.4}", summary.max_abs),
        format!("{:.6}", summary.max_rel),
        format!("{}/{}", summary.nan, summary.inf),
    ];
    compared.iter().map(ToString::to_string).chain(figures).collect()
}

/// Greedy tokens: how many are the same, and where and why others are not.
fn greedy(report: &Report, text: Option<&Text>, out: &mut Output) -> Result<()> {
    let total: usize = report.cells.iter().map(|cell| cell.summary.positions).sum();
    let same = total - report.differences.len();
    let ties = report.differences.iter().filter(|difference| difference.tie).count();
    out.line(format_args!("greedy tokens: {same} of {total} the same, {ties} differ within a tie"))?;
    if report.differences.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[&PLACE[..], &["reference", "bundle", ">gap", ">rounding", ""]].concat());
    for difference in report.differences.iter().take(LISTED) {
        table.row(difference_row(difference, text));
    }
    out.text(table.indented(2))?;
    match report.differences.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => out.line(format_args!("  and {more} more")),
    }
}

fn difference_row(difference: &Difference, text: Option<&Text>) -> [String; 9] {
    let token = |id: u32| {
        let written = text.and_then(|text| text.tokenizer.token(id));
        written.map_or_else(|| id.to_string(), |written| format!("{id} {written:?}"))
    };
    [
        difference.kv.to_string(),
        difference.seq_len.to_string(),
        difference.prompt.to_string(),
        difference.position.to_string(),
        token(difference.expected),
        token(difference.found),
        format!("{:.4}", difference.gap),
        format!("{:.4}", difference.tolerance),
        if difference.tie { "tie" } else { "not a tie" }.to_owned(),
    ]
}
