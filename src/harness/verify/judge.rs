//! The verdict: what was found against what is good enough.

use super::metrics::Summary;
use super::report::{Cell, Difference, Drift, Failure};
use super::thresholds::Thresholds;

/// Everything that is not good enough.
pub fn judge(cells: &[Cell], drift: &[Drift], differing: &[Difference], limits: &Thresholds) -> Vec<Failure> {
    let mut failures = Vec::new();
    for cell in cells {
        let at = format!("{} {} {}", cell.kv, cell.seq_len, cell.phase);
        let summary = &cell.summary;
        let mut checks = vec![
            at_least("cosine", summary.cosine_min, limits.cosine),
            at_most("kl", summary.kl_max, limits.kl),
            at_least("top1", Some(summary.top1 + ties(cell, differing)), limits.top1),
            at_least("top5", Some(summary.top5), limits.top5),
        ];
        checks.extend(limits.max_abs.map(|limit| at_most("max_abs", Some(summary.max_abs), limit)));
        checks.extend(finite(summary));
        failures.extend(checks.into_iter().filter_map(|check| check.failure(&at)));
    }
    for drift in drift {
        let at = format!("{} {} against {}", drift.kv, drift.seq_len, drift.against);
        let check = at_least("drift_cosine", drift.summary.cosine_min, limits.drift_cosine);
        failures.extend(check.failure(&at));
    }
    for difference in differing.iter().filter(|d| limits.ties_only && !d.tie) {
        let Difference { kv, seq_len, prompt, position, .. } = difference;
        let at = format!("{kv} {seq_len} prompt {prompt} position {position}");
        failures.extend(at_most("gap", Some(difference.gap), difference.tolerance).failure(&at));
    }
    failures
}

/// The share of a cell's positions where another token won within a tie, which counts as the same.
fn ties(cell: &Cell, differences: &[Difference]) -> f64 {
    let place = (cell.kv, cell.seq_len, cell.phase);
    let ties = differences.iter().filter(|d| d.tie && (d.kv, d.seq_len, d.phase) == place).count();
    ties as f64 / cell.summary.positions.max(1) as f64
}

struct Check {
    metric: &'static str,
    found: Option<f64>,
    limit: f64,
    good: bool,
}

impl Check {
    fn failure(self, at: &str) -> Option<Failure> {
        let Check { metric, found, limit, good } = self;
        (!good).then(|| Failure { at: at.to_owned(), metric, found, limit })
    }
}

fn at_least(metric: &'static str, found: Option<f64>, limit: f64) -> Check {
    Check { metric, found, limit, good: found.is_some_and(|found| found >= limit) }
}

fn at_most(metric: &'static str, found: Option<f64>, limit: f64) -> Check {
    Check { metric, found, limit, good: found.is_some_and(|found| found <= limit) }
}

fn finite(summary: &Summary) -> [Check; 3] {
    let reference = ("reference_non_finite", summary.reference_non_finite);
    [("nan", summary.nan), ("inf", summary.inf), reference]
        .map(|(name, count)| at_most(name, Some(count as f64), 0.0))
}
