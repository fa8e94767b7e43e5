//! One HTML page that needs nothing else: tables and charts of one report or of many.

use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;

use super::census::{DETAILED, census};
use super::chart::{self, Theme, against, charts, comparisons};
use super::fleet::{by_profile, groups, overviews};
use super::sweep::{best, sweep_subtitle, sweep_tables, sweep_title};
use super::table::Table;
use super::tables::{runtime, tables};
use super::verdict::{headline, verdict_tables};
use super::{RenderError, Result, number};
use crate::gate::Verdict;
use crate::report::{Metric, QualityFigure, Report, TextLoss};
use crate::stats::{Percentile, Unit};
use crate::sweep::Sweep;
use anemeter_base::text::{visible, visible_lines};

/// Key figures are those of the first places; tables have all of them.
const MOST_PLACES: usize = 8;

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
    Ok(Group { table: table.visible(), charts })
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
        tables: verdict_tables(verdict).into_iter().map(Table::visible).collect(),
    })
}

/// What a sweep came to, above its reports.
#[derive(Serialize)]
struct Decision {
    title: String,
    subtitle: String,
    best: String,
    warning: Option<String>,
    charts: Vec<Value>,
    tables: Vec<Table>,
}

fn decision(sweep: &Sweep, reports: &[Report]) -> Result<Decision> {
    let note = reports.iter().find(|report| report.residency.is_none()).map(|report| &report.residency_note);
    let charts = chart::sweep(sweep, Theme::Page)?;
    Ok(Decision {
        title: visible(&sweep_title(reports)),
        subtitle: sweep_subtitle(sweep),
        best: best(sweep),
        warning: note.map(|note| visible(note)),
        charts: charts.into_iter().map(|chart| Value::from_safe_string(chart.svg)).collect(),
        tables: sweep_tables(sweep).into_iter().map(Table::visible).collect(),
    })
}

/// A sweep as one page: which configuration is best and why, all of them side by side, and the report of each.
pub fn sweep_html(sweep: &Sweep, reports: &[Report]) -> Result<String> {
    let decision = decision(sweep, reports)?;
    let mut sections =
        reports.iter().enumerate().map(|(i, report)| section(i, report)).collect::<Result<Vec<_>>>()?;
    for (section, row) in sections.iter_mut().zip(&sweep.rows) {
        section.title = format!("{}: {}", visible(&row.name), section.title);
    }
    let title = format!("{} – anemeter sweep", decision.title);
    rendered(&context! { title, decision, sections })
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
    let (groups, sections) = match reports.len() {
        0..=DETAILED => detailed(&by_profile(reports))?,
        _ => {
            let group = |table: Table| Group { table: table.visible(), charts: Vec::new() };
            (census(reports).into_iter().map(group).collect(), Vec::new())
        }
    };
    let title = match reports {
        [one] => format!("{} – anemeter report", visible(&one.subject.label())),
        many => format!("{} reports – anemeter", many.len()),
    };
    let judged = verdict.map(verdict_section).transpose()?;
    rendered(&context! { title, judged, groups, sections })
}

fn rendered(content: &Value) -> Result<String> {
    let failed = |e: minijinja::Error| RenderError::new("the page", format!("{e:#}"));
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_template("page", TEMPLATE).map_err(failed)?;
    let page = environment.get_template("page").map_err(failed)?;
    let version = env!("CARGO_PKG_VERSION");
    page.render(context! { version, ..content.clone() }).map_err(failed)
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
        tables: tables(report).into_iter().map(Table::visible).collect(),
        failures: failures.collect(),
    })
}

/// The numbers to see first.
fn key_figures(report: &Report) -> Vec<KeyFigure> {
    let mut found = Vec::new();
    for place in report.places().into_iter().take(MOST_PLACES) {
        for metric in [Metric::Ttft, Metric::Tps, Metric::Latency, Metric::PredictionRate] {
            let Some(figure) = report.figure_at(metric, Some(&place)) else { continue };
            let p95 = figure.summary.percentiles.p95.map_or_else(
                || format!("from {} samples on", Percentile::P95.minimum_samples()),
                |p95| number::figure(p95, figure.unit),
            );
            found.push(KeyFigure {
                name: visible(&format!("{metric} at {place}")),
                value: number::maybe(figure.summary.percentiles.p50, figure.unit),
                detail: format!("p95 {p95}"),
            });
        }
    }
    found.extend(size_and_quality(report));
    found
}

/// What speed is bought with.
fn size_and_quality(report: &Report) -> Vec<KeyFigure> {
    let key = |name: &str, value: String, detail: String| KeyFigure { name: name.to_owned(), value, detail };
    let package = number::figure(report.subject.package_bytes as f64, Unit::Bytes);
    let mut found = vec![key("packages", package, visible(&report.subject.precision))];
    let loss = report.quality_loss();
    let memory = || {
        let memory = report.figure_at(Metric::MemoryPeak, None)?;
        let value = number::maybe(memory.summary.percentiles.p50, memory.unit);
        Some(key("memory peak", value, "of the process".to_owned()))
    };
    match loss {
        Some(loss) => found.push(key(
            "KL divergence",
            loss.kl.map_or_else(|| number::ABSENT.to_owned(), |kl| QualityFigure::Kl.shown(kl)),
            format!("top-1 {}", QualityFigure::Top1.shown(loss.top1)),
        )),
        // What gives no logits has no divergence.
        None if report.is_of_predictions() => found.extend(memory()),
        None => {
            found.push(key("KL divergence", number::ABSENT.to_owned(), "nobody measured it".to_owned()));
        }
    }
    let increase = loss.and_then(|loss| loss.text.as_ref()).map(TextLoss::increase_pct);
    found.extend(report.perplexity().map(|perplexity| {
        let detail = increase
            .map(|pct| format!("verify: {} against the checkpoint", QualityFigure::Perplexity.shown(pct)));
        key("perplexity", format!("{perplexity:.3}"), detail.unwrap_or_else(|| "of a text".to_owned()))
    }));
    found
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
    fn size_and_quality_stand_beside_speed() {
        let mut report = testing::report();
        assert!(html(&[report.clone()]).unwrap().contains("nobody measured it"));
        let mut found = testing::verification();
        found.quality = Some(testing::quality_loss());
        report.verification = Some(found);
        let page = html(&[report]).unwrap();
        for figure in ["0.0110 nats</b>", "top-1 95.0 %", "20.140</b>", "+0.70 % against the checkpoint"] {
            assert!(page.contains(figure), "{figure}");
        }
    }

    #[test]
    fn a_page_of_predictions_says_nothing_of_logits() {
        let page = html(&[testing::predicted(3, 1.0)]).unwrap();
        for word in ["KL divergence", "nobody measured it", "TTFT", "TPS"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("memory peak"));
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
    fn a_sweep_begins_with_the_decision() {
        let (sweep, reports) = crate::render::sweep::testing::precisions();
        let page = sweep_html(&sweep, &reports).unwrap();
        assert!(page.contains("<title>tiny: 4 configurations – anemeter sweep</title>"), "{page}");
        let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words}: {page}"));
        assert!(
            at("best: small &lt;b&gt;") < at("Speed over size")
                && at("Speed over size") < at("Configurations")
        );
        assert!(at("Configurations") < at("Not eligible") && at("Not eligible") < at("id=\"report-1\""));
        assert!(at("Not a Neural Engine figure") < at("Configurations"));
        assert_eq!(page.matches("<details").count(), 4);
        assert!(
            page.contains("<h1>2. small &lt;b&gt;: tiny (int8)</h1>") && !page.contains("small <b>"),
            "{page}"
        );
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
