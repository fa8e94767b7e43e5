//! One HTML page that needs nothing else: tables and charts of one report or of many.

use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;

use super::census::{DETAILED, census};
use super::chart::{Theme, against, charts, comparisons};
use super::fleet::{by_profile, groups, overviews};
use super::table::Table;
use super::tables::{runtime, tables};
use super::verdict::{headline, verdict_tables};
use super::{RenderError, Result, number};
use crate::gate::Verdict;
use crate::report::{Metric, Report};
use crate::stats::Percentile;
use anemeter_base::text::{visible, visible_lines};

const TEMPLATE: &str = include_str!("page.html");

#[derive(Serialize)]
struct Section {
    id: String,
    title: String,
    subtitle: String,
    warning: Option<String>,
    key_figures: Vec<KeyFigure>,
    charts: Vec<Value>,
    tables: Vec<Table>,
    failures: Vec<FailedLaunch>,
}

#[derive(Serialize)]
struct KeyFigure {
    name: String,
    value: String,
    detail: String,
}

#[derive(Serialize)]
struct FailedLaunch {
    index: usize,
    why: String,
    stderr: String,
}

/// The reports of one hardware profile.
#[derive(Serialize)]
struct Group {
    table: Table,
    charts: Vec<Value>,
}

fn group((table, reports): (Table, &[Report])) -> Result<Group> {
    let charts = comparisons(reports, Theme::Page)?;
    let charts = charts.into_iter().map(|chart| Value::from_safe_string(chart.svg)).collect();
    Ok(Group { table: visible_table(table), charts })
}

/// What a gate found, above the report that it judged.
#[derive(Serialize)]
struct VerdictSection {
    headline: String,
    chart: Option<Value>,
    tables: Vec<Table>,
}

fn verdict_section(verdict: &Verdict) -> Result<VerdictSection> {
    Ok(VerdictSection {
        headline: visible(&headline(verdict)),
        chart: against(verdict, Theme::Page)?.map(|chart| Value::from_safe_string(chart.svg)),
        tables: verdict_tables(verdict).into_iter().map(visible_table).collect(),
    })
}

/// Reports as one page; several are a history in the order given, by hardware profile.
pub fn html(reports: &[Report]) -> Result<String> {
    page(reports, None)
}

/// A report as one page, below the verdict on it.
pub fn judged_html(report: &Report, verdict: &Verdict) -> Result<String> {
    page(std::slice::from_ref(report), Some(verdict))
}

fn page(reports: &[Report], verdict: Option<&Verdict>) -> Result<String> {
    let failed = |e: minijinja::Error| RenderError::new("the page", format!("{e:#}"));
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_template("page", TEMPLATE).map_err(failed)?;
    let (groups, sections) = match reports.len() {
        0..=DETAILED => detailed(&by_profile(reports))?,
        _ => {
            let group = |table| Group { table: visible_table(table), charts: Vec::new() };
            (census(reports).into_iter().map(group).collect(), Vec::new())
        }
    };
    let title = match reports {
        [one] => format!("{} – anemeter report", visible(&one.subject.label())),
        many => format!("{} reports – anemeter", many.len()),
    };
    let judged = verdict.map(verdict_section).transpose()?;
    let page = environment.get_template("page").map_err(failed)?;
    let version = env!("CARGO_PKG_VERSION");
    page.render(context! { title, judged, groups, sections, version }).map_err(failed)
}

/// What up to [`DETAILED`] reports come to: an overview if they are several, and each by itself.
fn detailed(reports: &[Report]) -> Result<(Vec<Group>, Vec<Section>)> {
    let sections =
        reports.iter().enumerate().map(|(index, report)| section(index, report)).collect::<Result<_, _>>()?;
    let groups = match reports {
        [_] => Vec::new(),
        _ => overviews(reports).into_iter().zip(groups(reports)).map(group).collect::<Result<_, _>>()?,
    };
    Ok((groups, sections))
}

fn section(index: usize, report: &Report) -> Result<Section> {
    let charts = charts(report, Theme::Page)?;
    let failures = report.failures().map(|(launch, failure)| FailedLaunch {
        index: launch.index,
        why: visible(&failure.to_string()),
        stderr: launch.stderr.as_deref().map(visible_lines).unwrap_or_default(),
    });
    Ok(Section {
        id: format!("report-{}", index + 1),
        title: visible(&report.subject.label()),
        subtitle: visible(&format!(
            "{} · {} · {}",
            report.header.created,
            report.header.hardware_profile_key,
            runtime(report)
        )),
        warning: report.residency.is_none().then(|| visible(&report.residency_note)),
        key_figures: key_figures(report),
        charts: charts.into_iter().map(|chart| Value::from_safe_string(chart.svg)).collect(),
        tables: tables(report).into_iter().map(visible_table).collect(),
        failures: failures.collect(),
    })
}

/// The numbers to see first.
fn key_figures(report: &Report) -> Vec<KeyFigure> {
    let mut found = Vec::new();
    for seq_len in report.seq_lens() {
        for metric in [Metric::Ttft, Metric::Tps] {
            let Some(figure) = report.figure(metric, Some(seq_len)) else { continue };
            let p95 = figure.summary.percentiles.p95.map_or_else(
                || format!("from {} samples on", Percentile::P95.minimum_samples()),
                |p95| number::figure(p95, figure.unit),
            );
            found.push(KeyFigure {
                name: format!("{metric} at {seq_len}"),
                value: number::maybe(figure.summary.percentiles.p50, figure.unit),
                detail: format!("p95 {p95}"),
            });
        }
    }
    found
}

fn visible_table(mut table: Table) -> Table {
    for cell in table.rows.iter_mut().flatten().chain([&mut table.title, &mut table.note]) {
        *cell = visible(cell);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn a_page_holds_everything_and_asks_for_nothing() {
        let page = html(&[testing::report()]).unwrap();
        assert!(page.contains("<title>tiny (fp16) – anemeter report</title>"));
        assert_eq!(page.matches("<svg ").count(), 6);
        assert!(page.contains("ended early: signal 9") && page.contains("out of memory"));
        assert!(page.contains("the cpu runtime does not use the Neural Engine"));
        for loading in ["<script", "<link", "<img", "<iframe", "url(", "@import", "src="] {
            assert!(!page.contains(loading), "{loading}");
        }
        let addresses = page.matches("http").count();
        assert_eq!(addresses, page.matches("xmlns=\"http").count(), "only the name of SVG");
    }

    #[test]
    fn a_verdict_stands_above_its_report() {
        let page = judged_html(&testing::report(), &crate::render::verdict::testing::verdict()).unwrap();
        assert_eq!(page.matches("<svg ").count(), 7);
        let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words}: {page}"));
        assert!(at("FAIL: tiny &lt;b&gt;|*") < at("Candidate against baseline"));
        assert!(at("Candidate against baseline") < at("chance is ruled out"));
        assert!(at("chance is ruled out") < at("id=\"report-1\""));
        assert!(!html(&[testing::report()]).unwrap().contains("Candidate against baseline"));
    }

    #[test]
    fn a_history_has_an_overview() {
        let mut other = testing::report();
        other.header.hardware_profile_key = "apple-m1".to_owned();
        let page = html(&[testing::report(), other]).unwrap();
        assert!(page.contains("<title>2 reports – anemeter</title>"));
        assert!(page.contains("2 hardware profiles: their speeds are not comparable"));
        assert_eq!(page.matches("<svg ").count(), 2 * 6, "a profile with one report is no history");
        assert!(page.contains("id=\"report-2\""));
        let page = html(&[testing::report(), testing::report()]).unwrap();
        assert_eq!(page.matches("<svg ").count(), 2 + 2 * 6);
        assert!(!page.contains("not comparable"));
    }

    #[test]
    fn of_a_fleet_there_is_a_census() {
        let page = html(&vec![testing::report(); DETAILED + 1]).unwrap();
        assert!(page.contains("<title>101 reports – anemeter</title>") && page.contains("not verified"));
        assert_eq!((page.matches("<svg ").count(), page.matches("<details").count()), (0, 0));
    }

    #[test]
    fn nothing_from_a_report_is_markup() {
        let evil = "</title><script>alert(1)</script>{{ 7*7 }}\u{0}\u{1b}]0;x\u{7}\"'";
        let mut report = testing::report();
        report.subject.name = evil.to_owned();
        report.header.hardware_profile_key = evil.to_owned();
        report.machine.chip = Some(evil.to_owned());
        report.runtime.remarks = vec![evil.to_owned()];
        report.residency_note = evil.to_owned();
        report.launches[2].stderr = Some(evil.repeat(10_000));
        report.noise[0].found = evil.to_owned();
        let page = html(&[report]).unwrap();
        assert!(!page.contains("<script") && !page.contains("</title><"));
        assert!(!page.contains(['\u{0}', '\u{1b}', '\u{7}']));
        assert!(page.contains("{{ 7*7 }}"));
    }
}
