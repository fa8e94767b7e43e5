//! Medians of two reports, per metric and sequence length.

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::{Measure, Statistic, Status, Verdict};
use crate::report::{Metric, Place, Report};
use crate::stats::{Direction, Unit};

/// The median of a metric in both reports.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// The metric.
    pub metric: Metric,
    /// The sequence length; absent for metrics of whole launches.
    pub seq_len: Option<usize>,
    /// The case of the workload `predict`; absent for other metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// What it counts.
    pub unit: Unit,
    /// In the first report.
    pub baseline: f64,
    /// The candidate's median.
    pub candidate: f64,
    /// By how many per cent it got worse; negative if it got better.
    pub worse_pct: f64,
    /// What the gate says of it, where it judges such a thing.
    pub status: Option<Status>,
}

/// Medians that both reports have, what got worse most first.
pub(super) fn speeds(baseline: &Report, candidate: &Report, verdict: Option<&Verdict>) -> Vec<Speed> {
    let one = |figure: &crate::report::Figure| {
        let (metric, place) = (figure.metric, figure.place());
        let before = baseline.figure_at(metric, place.as_ref())?.summary.percentiles.p50?;
        let after = figure.summary.percentiles.p50?;
        let worse_pct = match metric.direction() {
            Direction::LowerIsBetter => 100.0 * (after / before - 1.0),
            Direction::HigherIsBetter => 100.0 * (1.0 - after / before),
        };
        let status = verdict.and_then(|verdict| judged(verdict, metric, place.as_ref()));
        worse_pct.is_finite().then(|| Speed {
            metric,
            seq_len: figure.seq_len,
            case: figure.case.clone(),
            unit: metric.unit(),
            baseline: before,
            candidate: after,
            worse_pct,
            status,
        })
    };
    let mut speeds: Vec<Speed> = candidate.figures.iter().filter_map(one).collect();
    // Differences that nobody sees leave metrics in their usual order.
    let seen = |speed: &Speed| (10.0 * speed.worse_pct).round();
    speeds.sort_by(|a, b| seen(b).total_cmp(&seen(a)));
    speeds
}

fn judged(verdict: &Verdict, metric: Metric, place: Option<&Place>) -> Option<Status> {
    let measure = match metric {
        Metric::Ttft => Measure::Ttft,
        Metric::Tps => Measure::Tps,
        Metric::Latency => Measure::Latency,
        Metric::Load => Measure::Load,
        Metric::MemoryPeak => Measure::MemoryPeak,
        _ => return None,
    };
    let is_it = |check: &&crate::gate::Check| {
        (check.measure, check.statistic) == (measure, Some(Statistic::P50)) && check.place().as_ref() == place
    };
    verdict.checks.iter().find(is_it).map(|check| check.status)
}
