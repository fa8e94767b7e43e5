//! Tables of the workload `predict`: functions at their shapes.

use super::number::{digits, figure, maybe, range};
use super::table::{Table, table, texts};
use crate::report::{Case, Figure, InputRange, InputSource, Metric, Place, Report};
use crate::stats::Unit;
use anemeter_base::vocabulary::Choice;

/// Latency of each case.
pub(super) fn latencies(report: &Report) -> Table {
    let row = |case: &Case| {
        let place = Place::Case(case.name.clone());
        let of = |metric| report.figure_at(metric, Some(&place));
        let p = |metric: Metric, pick: fn(&Figure) -> Option<f64>| {
            maybe(of(metric).and_then(pick), metric.unit())
        };
        let latency = of(Metric::Latency)?;
        Some(vec![
            case.name.clone(),
            latency.summary.count.to_string(),
            p(Metric::Latency, |f| f.summary.percentiles.p50),
            range(latency.p50_interval.as_ref(), latency.unit),
            p(Metric::Latency, |f| f.summary.percentiles.p90),
            p(Metric::Latency, |f| f.summary.percentiles.p95),
            p(Metric::Latency, |f| f.summary.percentiles.p99),
            p(Metric::PredictionRate, |f| f.summary.percentiles.p50),
            p(Metric::FirstOfCase, |f| f.summary.percentiles.p50),
        ])
    };
    let headings =
        ["case", "predictions", "p50", "95 % interval", "p90", "p95", "p99", "per second p50", "first p50"];
    let note = "Time of one prediction; a dash means too few samples. Intervals are of the p50, from launches. The first \
                prediction of each launch plans memory and is not among the others.";
    table("Latency", note, &headings, report.workload.cases.iter().filter_map(row).collect())
}

/// How far each case is from what the machine allows.
pub(super) fn rooflines(report: &Report) -> Table {
    let rows = report.rooflines.iter().map(|bound| {
        let intensity = bound.flops as f64 / bound.weight_bytes.max(1) as f64;
        vec![
            bound.case.clone(),
            digits(bound.flops as f64 / 1e6),
            figure(bound.weight_bytes as f64, Unit::Bytes),
            digits(intensity),
            figure(bound.gb_per_s, Unit::GigabytesPerSecond),
            figure(bound.bound_ms, Unit::Milliseconds),
            figure(bound.share_of_bound, Unit::Share),
            digits(bound.gflops),
        ]
    });
    let first = report.rooflines.first();
    let source = first.map_or("", |bound| bound.bandwidth_source.as_str());
    let roof = match first.and_then(|bound| bound.balance) {
        Some(balance) => format!(
            "Each prediction reads the weights once; above {balance} FLOPs per byte arithmetic is the limit."
        ),
        None => "Each prediction reads the weights once; the bound is that of memory alone, so what computes much for each \
                 byte reaches little of it."
            .to_owned(),
    };
    let note = format!("{roof} Bandwidth: {source}.");
    let headings =
        ["case", "MFLOPs", "weights", "FLOPs per byte", "bandwidth", "bound", "reached", "GFLOP/s p50"];
    table("What the machine allows", &note, &headings, rows.collect())
}

/// What the predictions were given.
pub(super) fn inputs(report: &Report) -> Table {
    let row = |case: &Case| {
        let shape = |shape: &[u64]| shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        let shapes: Vec<String> =
            case.shapes.iter().map(|of| format!("{} {}", of.input, shape(&of.shape))).collect();
        let samples = case.samples.to_string();
        vec![case.name.clone(), case.package.clone(), case.function.clone(), shapes.join(", "), samples]
    };
    let headings = ["case", "package", "function", "inputs", "samples"];
    let mut found = texts("Cases", &headings, report.workload.cases.iter().map(row).collect());
    let states = report.workload.states.map_or("", Choice::name);
    let source = match &report.workload.inputs {
        Some(InputSource::MadeUp { seed, ranges }) => {
            let range = |of: &InputRange| format!(", {} from {} to {}", of.input, of.low, of.end - 1);
            let ranges: String = ranges.iter().map(range).collect();
            format!("Inputs are made up with seed {seed}{ranges}.")
        }
        Some(InputSource::File { path, digest }) => format!("Inputs are those of {path} ({digest})."),
        None => return found,
    };
    found.note = format!("{source} States are {states} for each request.");
    found
}

#[cfg(test)]
mod tests {
    use crate::render::{csv, html, markdown, tables};
    use crate::report::testing;

    #[test]
    fn a_report_of_predictions_reads_well_and_says_nothing_of_tokens() {
        let report = testing::predicted(3, 1.0);
        let text = markdown(std::slice::from_ref(&report));
        insta::assert_snapshot!(text);
        let page = html(std::slice::from_ref(&report)).unwrap();
        for word in ["TTFT", "TPS", "token", "seq_len", "KV "] {
            assert!(!text.contains(word), "{word}");
            assert!(!page.contains(word), "{word} in the page");
        }
        assert!(
            tables(&report).iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len()))
        );
    }

    #[test]
    fn every_prediction_has_its_rows() {
        let report = testing::predicted(2, 1.0);
        let text = csv(&[report]).unwrap();
        // Two first predictions with one value, sixty with a latency and a rate, six values of a launch but energy.
        let samples = text.lines().filter(|line| line.starts_with("sample")).count();
        assert_eq!(samples, 2 * (2 + 60 * 2 + 5));
        assert!(text.contains(testing::CASES[1]) && !text.contains("ttft"));
    }
}
