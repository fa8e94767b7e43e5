//! CSV: one row per sample and one per summary.

use std::collections::HashMap;

use serde::Serialize;

use super::{RenderError, Result};
use crate::report::{Figure, Launch, Metric, Outcome, Report};
use crate::stats::{Direction, Unit};
use anemeter_base::text::visible;
use anemeter_base::vocabulary::Choice;

/// A row. Samples have a value; summaries have the rest.
#[derive(Clone, Copy, Serialize, Default)]
struct Row<'a> {
    kind: &'a str,
    model: &'a str,
    profile: &'a str,
    runtime: &'a str,
    created: &'a str,
    launch: Option<usize>,
    outcome: Option<&'a str>,
    slot: Option<usize>,
    step: Option<usize>,
    seq_len: Option<usize>,
    metric: Option<Metric>,
    unit: Option<Unit>,
    direction: Option<Direction>,
    value: Option<f64>,
    count: Option<usize>,
    mean: Option<f64>,
    standard_deviation: Option<f64>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    p50_low: Option<f64>,
    p50_high: Option<f64>,
    precision: &'a str,
    kl: Option<f64>,
    top1: Option<f64>,
    perplexity: Option<f64>,
    case: Option<&'a str>,
}

/// Reports as one CSV document.
pub fn csv(reports: &[Report]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for report in reports {
        let names = [
            &report.subject.name,
            &report.header.hardware_profile_key,
            &report.subject.precision,
            &report.header.created,
        ]
        .map(|text| plain(text));
        let row = |kind| Row {
            kind,
            model: &names[0],
            profile: &names[1],
            runtime: report.runtime.name.name(),
            precision: &names[2],
            kl: report.quality_loss().and_then(|loss| loss.kl),
            top1: report.quality_loss().map(|loss| loss.top1),
            perplexity: report.perplexity(),
            created: &names[3],
            ..Row::default()
        };
        let cases: HashMap<&str, String> =
            report.workload.cases.iter().map(|case| (case.name.as_str(), plain(&case.name))).collect();
        let case = |name: &str| cases.get(name).map(String::as_str);
        for launch in &report.launches {
            samples(launch, &|| row("sample"), &case, &mut writer).map_err(|e| RenderError::new("CSV", e))?;
        }
        for figure in &report.figures {
            let case = figure.case.as_deref().and_then(case);
            writer
                .serialize(Row { case, ..summary(figure, row("summary")) })
                .map_err(|e| RenderError::new("CSV", e))?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| RenderError::new("CSV", e))?;
    String::from_utf8(bytes).map_err(|e| RenderError::new("CSV", e))
}

fn samples<'a>(
    launch: &'a Launch,
    row: &dyn Fn() -> Row<'a>,
    case: &dyn Fn(&str) -> Option<&'a str>,
    to: &mut csv::Writer<Vec<u8>>,
) -> csv::Result<()> {
    let of = |metric: Metric, value: f64| Row {
        launch: Some(launch.index),
        outcome: Some(if launch.outcome == Outcome::Completed { "completed" } else { "failed" }),
        metric: Some(metric),
        unit: Some(metric.unit()),
        direction: Some(metric.direction()),
        value: Some(value),
        ..row()
    };
    for metric in Metric::ALL {
        if let Some(value) = metric.of_launch(launch) {
            to.serialize(of(metric, value))?;
        }
        for request in &launch.requests {
            for (step, value) in metric.of_request(request).into_iter().enumerate() {
                let step = (metric == Metric::InterToken).then_some(step);
                let (slot, seq_len) = (Some(request.slot), Some(request.seq_len));
                to.serialize(Row { slot, step, seq_len, ..of(metric, value) })?;
            }
        }
        for prediction in &launch.predictions {
            if let Some(value) = metric.of_prediction(prediction) {
                let (slot, case) = (Some(prediction.slot), case(&prediction.case));
                to.serialize(Row { slot, case, ..of(metric, value) })?;
            }
        }
    }
    Ok(())
}

fn summary<'a>(figure: &Figure, row: Row<'a>) -> Row<'a> {
    let summary = &figure.summary;
    Row {
        seq_len: figure.seq_len,
        metric: Some(figure.metric),
        unit: Some(figure.unit),
        direction: Some(figure.direction),
        count: Some(summary.count),
        mean: Some(summary.mean),
        standard_deviation: summary.standard_deviation,
        minimum: Some(summary.minimum),
        maximum: Some(summary.maximum),
        p50: summary.percentiles.p50,
        p90: summary.percentiles.p90,
        p95: summary.percentiles.p95,
        p99: summary.percentiles.p99,
        p50_low: figure.p50_interval.map(|interval| interval.low),
        p50_high: figure.p50_interval.map(|interval| interval.high),
        ..row
    }
}

/// Text that a spreadsheet does not take for a formula, nor a log for a command.
pub(crate) fn plain(text: &str) -> String {
    const FORMULA: [char; 9] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '＠'];
    let seen = visible(text);
    let is_formula = text.trim_start_matches([' ', '\'', '"']).starts_with(FORMULA);
    if is_formula { format!("'{seen}") } else { seen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn every_sample_and_every_summary_has_a_row() {
        let report = testing::report();
        let text = csv(std::slice::from_ref(&report)).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let kind = |kind: &str| rows.iter().filter(|row| &row[0] == kind).count();
        assert_eq!(kind("summary"), report.figures.len());
        // Per request ten values and four steps; per launch six values.
        assert_eq!(kind("sample"), 9 * 14 + 3 * 6);
        let first = rows.iter().find(|row| &row[10] == "ttft").unwrap();
        assert_eq!((&first[1], &first[9], &first[11], &first[13]), ("tiny", "512", "ms", "40.0"));
    }

    #[test]
    fn names_are_quoted_and_never_formulas() {
        let mut report = testing::report();
        report.subject.name = "=cmd|'/c calc'!A1,\"x\"\n".to_owned();
        let text = csv(&[report]).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let row = reader.records().next().unwrap().unwrap();
        assert_eq!(&row[1], "'=cmd|'/c calc'!A1,\"x\"\\n");
        for name in ["+1", "-1", "@SUM(1)", "\t=1", " =1"] {
            assert!(plain(name).starts_with('\''), "{name}");
        }
        assert_eq!(plain("a-b=c"), "a-b=c");
    }
}
