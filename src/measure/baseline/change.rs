//! What a new baseline changes: figures over all sessions, before and after.

use crate::report::{Figure, Launch, Metric, Place, Report, figures};
use crate::stats::Direction;

/// Metrics that a change is shown for.
const SHOWN: [Metric; 5] = [Metric::Ttft, Metric::Tps, Metric::Latency, Metric::Load, Metric::MemoryPeak];

/// A figure before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The metric.
    pub metric: Metric,
    /// Where it holds; absent for metrics of whole launches.
    pub place: Option<Place>,
    /// The percentile in words, `p50` or `p95`.
    pub percentile: &'static str,
    /// Before, if there was something to compare with.
    pub before: Option<f64>,
    /// The new baseline's value.
    pub after: f64,
}

impl Change {
    /// By how many per cent it changed.
    pub fn percent(&self) -> Option<f64> {
        let before = self.before.filter(|before| *before != 0.0)?;
        Some((self.after / before - 1.0) * 100.0)
    }

    /// Whether it got worse.
    pub fn is_worse(&self) -> bool {
        let higher = self.metric.direction() == Direction::HigherIsBetter;
        self.before.is_some_and(|before| if higher { self.after < before } else { self.after > before })
    }
}

/// What sessions change against others, which may be none.
pub fn changes(before: &[Report], after: &[Report]) -> Vec<Change> {
    let (before, after) = (pooled(before), pooled(after));
    let mut found = Vec::new();
    for figure in after.iter().filter(|figure| SHOWN.contains(&figure.metric)) {
        let (metric, place) = (figure.metric, figure.place());
        let same = |other: &&Figure| (other.metric, other.place()) == (metric, place.clone());
        let old = before.iter().find(same).map(|figure| figure.summary.percentiles);
        let new = figure.summary.percentiles;
        let mut push = |percentile, before, after: Option<f64>| {
            let place = place.clone();
            found.extend(after.map(|after| Change { metric, place, percentile, before, after }));
        };
        push("p50", old.and_then(|old| old.p50), new.p50);
        if place.is_some() {
            push("p95", old.and_then(|old| old.p95), new.p95);
        }
    }
    found
}

fn pooled(sessions: &[Report]) -> Vec<Figure> {
    let launches: Vec<Launch> = sessions.iter().flat_map(|session| session.launches.clone()).collect();
    figures(&launches)
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn changes_know_which_way_is_worse() {
        let slower = [testing::scaled(2, 1.1)];
        let changes = changes(&[testing::session(1)], &slower);
        let find = |metric| changes.iter().find(|change| change.metric == metric).unwrap();
        let (ttft, tps) = (find(Metric::Ttft), find(Metric::Tps));
        assert!((ttft.percent().unwrap() - 10.0).abs() < 1e-6 && ttft.is_worse());
        assert!((tps.percent().unwrap() + 100.0 - 100.0 / 1.1).abs() < 1e-6 && tps.is_worse());
        assert!(!find(Metric::MemoryPeak).is_worse());
    }

    #[test]
    fn the_first_baseline_has_nothing_before() {
        let changes = changes(&[], &[testing::session(1)]);
        assert!(!changes.is_empty());
        assert!(changes.iter().all(|change| change.before.is_none() && change.percent().is_none()));
        assert!(changes.iter().all(|change| !change.is_worse()));
    }
}
