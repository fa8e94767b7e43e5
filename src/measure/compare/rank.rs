//! Changes as causes: the likeliest first.

use schemars::JsonSchema;
use serde::Serialize;

use super::kinds::{KindChange, Strength};
use super::speed::Speed;
use crate::report::Metric;

/// Medians that got worse by no more are as good as before.
const NOTABLE_PCT: f64 = 1.0;

/// Something that changed, and what it may have done.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// What changed, such as `precision`.
    pub what: &'static str,
    /// In the first report.
    pub baseline: String,
    /// The candidate's value.
    pub candidate: String,
    /// How such a change acts.
    pub acts: &'static str,
    /// Whether it may be the cause of what got slower.
    pub cause: Cause,
    /// Metrics that it acts on and that got worse.
    pub on: Vec<Metric>,
    /// The most by which one of them got worse, in per cent.
    pub worst_pct: Option<f64>,
}

/// Whether a change may be the cause of what got slower, from the unlikeliest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing that it acts on got worse.
    Nothing,
    /// It should have made things faster.
    Opposite,
    /// It may be the cause.
    Possible,
    /// It is a likely one.
    Likely,
    /// It cannot but act on what got worse.
    Direct,
}

impl Cause {
    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Cause::Nothing => "no: nothing it acts on got slower",
            Cause::Opposite => "no: it should be faster",
            Cause::Possible => "possible",
            Cause::Likely => "likely",
            Cause::Direct => "very likely",
        }
    }
}

/// What each change may have done, the likeliest causes first, and among those the ones of what got worse most.
pub(super) fn ranked(found: Vec<KindChange>, speeds: &[Speed]) -> Vec<Change> {
    let mut changes: Vec<Change> = found.into_iter().map(|found| change(found, speeds)).collect();
    let key = |change: &Change| (change.cause, change.worst_pct.unwrap_or(0.0));
    changes.sort_by(|a, b| {
        let ((cause, worst), (other, others_worst)) = (key(a), key(b));
        other.cmp(&cause).then(others_worst.total_cmp(&worst))
    });
    changes
}

fn change(found: KindChange, speeds: &[Speed]) -> Change {
    let KindChange { kind, baseline, candidate, slows } = found;
    let worse: Vec<&Speed> = speeds
        .iter()
        .filter(|speed| kind.on.contains(&speed.metric) && speed.worse_pct > NOTABLE_PCT)
        .collect();
    let mut on: Vec<Metric> = worse.iter().map(|speed| speed.metric).collect();
    on.sort_unstable();
    on.dedup();
    let cause = match (slows, kind.strength) {
        _ if worse.is_empty() => Cause::Nothing,
        (Some(false), _) => Cause::Opposite,
        (_, Strength::Possible) => Cause::Possible,
        (_, Strength::Likely) => Cause::Likely,
        (_, Strength::Direct) => Cause::Direct,
    };
    let worst_pct = worse.iter().map(|speed| speed.worse_pct).max_by(f64::total_cmp);
    Change { what: kind.what, baseline, candidate, acts: kind.acts, cause, on, worst_pct }
}
