//! A report as Markdown, for comments and summaries of a CI job.

use super::text::{share, totals};
use crate::cli::{Output, Result};
use crate::lint::Report;
use crate::text::is_unseen;

pub(super) fn print(report: &Report, out: &mut Output) -> Result<()> {
    let device = report.device.map_or(String::new(), |device| format!(", {device}"));
    out.line(format_args!("## Lint of `{}` for {}{device}\n", cell(&report.subject), report.target))?;
    out.line(format_args!("{}\n", totals(report.counts)))?;
    if !report.findings.is_empty() {
        out.text("| severity | rule | place | finding |\n|---|---|---|---|\n")?;
    }
    for finding in &report.findings {
        let (severity, rule) = (finding.severity.name(), finding.rule);
        let (place, message) = (cell(&report.location(finding)), cell(&finding.message));
        out.line(format_args!("| {severity} | {rule} {} | {place} | {message} |", cell(finding.title)))?;
    }
    if !report.waived.is_empty() || !report.unused_waivers.is_empty() {
        out.text("\n### Waivers\n\n| rule | place | reason |\n|---|---|---|\n")?;
    }
    for waived in &report.waived {
        let place = cell(&report.location(&waived.finding));
        out.line(format_args!("| {} | {place} | {} |", waived.finding.rule, cell(&waived.reason)))?;
    }
    for waiver in &report.unused_waivers {
        out.line(format_args!("| {} | {} | accepts nothing |", waiver.rule, cell(&waiver.places)))?;
    }
    if !report.not_checked.is_empty() {
        out.line("\n### Not checked\n")?;
    }
    for skipped in &report.not_checked {
        let place = skipped.place.as_ref().map_or(String::new(), |place| format!(" in `{}`", cell(place)));
        out.line(format_args!("- {}{place}: needs {}", skipped.rule, cell(skipped.needs)))?;
    }
    placement(report, out)
}

fn placement(report: &Report, out: &mut Output) -> Result<()> {
    if report.placements.is_empty() {
        return Ok(());
    }
    out.line("\n### Placement, predicted and not measured\n")?;
    out.text(
        "| function | shape | on the ANE | by cost | transitions | islands |\n|---|---|---|---|---|---|\n",
    )?;
    for placement in &report.placements {
        out.line(format_args!(
            "| {}/{} | {} | {} | {} | {} | {} |",
            cell(&placement.package),
            cell(&placement.function),
            cell(placement.shape.as_deref().unwrap_or("")),
            share(placement.residency_by_operations),
            share(placement.residency_by_cost),
            placement.transitions,
            placement.islands.len()
        ))?;
    }
    Ok(())
}

/// Text that stays within a cell.
fn cell(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c {
            '|' => vec!['\\', '|'],
            '<' => "&lt;".chars().collect(),
            c if is_unseen(c) => vec![' '],
            c => vec![c],
        })
        .collect()
}
