//! A report for the terminal.

use crate::cli::{Output, Result};
use crate::lint::{Counts, FindingGroup, Report};
use crate::render::Table;

/// Places shown per rule.
const SHOWN: usize = 4;

pub(super) fn print(report: &Report, all: bool, out: &mut Output) -> Result<()> {
    let device = report.device.map_or(String::new(), |device| format!(", {device}"));
    out.line(format_args!("{}, for {}{device}", report.subject.escape_debug(), report.target))?;
    for findings in report.findings.chunk_by(|a, b| a.rule == b.rule && a.severity == b.severity) {
        group(report, findings, all, out)?;
    }
    waivers(report, out)?;
    if !report.not_checked.is_empty() {
        out.line("\nnot checked")?;
        for skipped in &report.not_checked {
            let place = skipped.place.as_ref().map_or(String::new(), |place| format!(" in {place}"));
            out.line(format_args!("  {}{place}: needs {}", skipped.rule, skipped.needs))?;
        }
    }
    placement(report, out)?;
    out.line(format_args!("\n{}", totals(report.counts)))
}

fn group(report: &Report, findings: &[FindingGroup], all: bool, out: &mut Output) -> Result<()> {
    let Some(first) = findings.first() else { return Ok(()) };
    out.line(format_args!("\n{} {}: {}", first.severity.name(), first.rule, first.title))?;
    let shown = if all { findings.len() } else { findings.len().min(SHOWN) };
    for finding in &findings[..shown] {
        let (place, message) = (report.location(finding), finding.message.escape_debug());
        out.line(format_args!("  {}: {message}", place.escape_debug()))?;
    }
    match findings.len() - shown {
        0 => Ok(()),
        more => out.line(format_args!("  and at {more} more places; --all lists them")),
    }
}

fn waivers(report: &Report, out: &mut Output) -> Result<()> {
    if !report.waived.is_empty() {
        out.line("\nwaived")?;
    }
    for waived in &report.waived {
        let (finding, reason) = (&waived.finding, waived.reason.escape_debug());
        out.line(format_args!("  {} {}: {reason}", finding.rule, report.location(finding).escape_debug()))?;
    }
    for waiver in &report.unused_waivers {
        let places = waiver.places.escape_debug();
        out.line(format_args!("\nwarning: the waiver of {} at `{places}` accepts nothing", waiver.rule))?;
    }
    Ok(())
}

fn placement(report: &Report, out: &mut Output) -> Result<()> {
    if report.placements.is_empty() {
        return Ok(());
    }
    out.line("\nplacement, predicted from rules and costs and not measured")?;
    let figures = [">operations", ">on the ANE", ">by cost", ">transitions", ">islands"];
    let mut table = Table::new(&[&["function", "shape"], &figures[..], &["kept off by"]].concat());
    for placement in &report.placements {
        let mut reasons: Vec<_> = placement.islands.iter().flat_map(|i| i.reasons.iter().copied()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        table.row([
            match report.is_single {
                true => placement.function.clone(),
                false => format!("{}/{}", placement.package, placement.function),
            },
            placement.shape.clone().unwrap_or_default(),
            placement.operations.to_string(),
            share(placement.residency_by_operations),
            share(placement.residency_by_cost),
            placement.transitions.to_string(),
            placement.islands.len().to_string(),
            reasons.join(" "),
        ]);
    }
    out.text(table.indented(2))
}

/// A share in percent; what has no share is shown as such.
pub(super) fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// All findings in one line.
pub(super) fn totals(counts: Counts) -> String {
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let waived = if counts.waived == 0 { String::new() } else { format!(", {} waived", counts.waived) };
    format!(
        "{}, {}, {}{waived}",
        plural(counts.errors, "error"),
        plural(counts.warnings, "warning"),
        plural(counts.infos, "remark")
    )
}
