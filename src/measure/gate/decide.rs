//! What one series comes to, given its shift: the part that both rules share.
//!
//! Two one-sided tests against two thresholds, on logarithms:
//!
//! ```text
//! fail          estimate > limit, and no change is ruled out at the false-alarm rate
//! pass          upper bound (95 %) < excluded, and for a median also estimate <= limit
//! inconclusive  otherwise
//! ```
//!
//! The pass is a non-inferiority test, so that noise alone never passes. D. J. Schuirmann, "A comparison of the two
//! one-sided tests procedure and the power approach", J. Pharmacokin. Biopharm. 15 (1987).

use super::needed::more_launches;
use super::policy::Policy;
use super::rates::{Family, InterimLook};
use super::series::{Series, log_of_pct, pct_of_log};
use super::verdict::{Check, Effect, Limit, Range, Statistic, Status};
use crate::report::Place;
use crate::stats::Shift;
use crate::words::configured;

/// Confidence of the intervals that are shown.
const CONFIDENCE: f64 = 0.95;

/// The thresholds that a shift is held against, on slow-oriented logarithms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thresholds {
    /// An observed regression above this may fail.
    pub(super) limit: f64,
    /// A regression of this size must be excluded before it passes.
    pub(super) excluded: f64,
    /// How often a regression of that size may pass.
    pub(super) passes: f64,
    /// Whether an observed regression above the limit cannot pass.
    pub(super) limit_binds: bool,
}

impl Thresholds {
    pub(super) fn new(series: &Series, policy: &Policy, look: InterimLook) -> Thresholds {
        let direction = series.metric.direction();
        Thresholds {
            limit: log_of_pct(policy.limit_pct(series.measure), direction),
            excluded: log_of_pct(policy.excluded_pct(series.measure, series.statistic), direction),
            passes: look.passes(),
            // Not for tails: a p95 of a few dozen samples exceeds its limit by chance.
            limit_binds: series.statistic == Statistic::P50,
        }
    }

    /// What a shift comes to; `significant` says whether chance alone is ruled out.
    pub(super) fn status(&self, shift: &Shift, significant: bool) -> Status {
        let beyond = shift.estimate > self.limit;
        if beyond && significant {
            return Status::Fail;
        }
        let excluded = shift.upper(self.passes) < self.excluded;
        match excluded && !(beyond && self.limit_binds) {
            true => Status::Pass,
            false => Status::Inconclusive,
        }
    }
}

/// A series with its shift and how sure it is.
pub(super) struct JudgedSeries<'a> {
    pub(super) series: &'a Series,
    pub(super) shift: Shift,
    pub(super) significant: bool,
    /// How often no change would look like this, corrected for the family.
    pub(super) probability: Option<f64>,
    /// How often such a shift fails without any change, taken by itself.
    pub(super) false_alarm: f64,
    /// Launches of the candidate that come together.
    pub(super) step: usize,
    /// Whether the baseline gets as many.
    pub(super) both_grow: bool,
}

impl JudgedSeries<'_> {
    /// Launches that would likely settle it.
    fn more_launches(&self, thresholds: &Thresholds) -> Option<usize> {
        let [baseline, candidate] = self.shift.launches;
        more_launches(&self.shift, thresholds, self.false_alarm, self.step, |more| {
            [if self.both_grow { baseline + more } else { baseline }, candidate + more]
        })
    }
}

/// The check of a series that was judged.
pub(super) fn check(judged: &JudgedSeries<'_>, policy: &Policy, look: InterimLook) -> Check {
    let JudgedSeries { series, shift, significant, probability, .. } = judged;
    let thresholds = Thresholds::new(series, policy, look);
    let status = thresholds.status(shift, *significant);
    let direction = series.metric.direction();
    let pct = |log: f64| pct_of_log(log, direction);
    let [worse, _] = series.measure.words();
    let limit = configured(policy.limit_pct(series.measure));
    let excluded = configured(policy.excluded_pct(series.measure, series.statistic));
    let observed = series.measure.change(pct(shift.estimate));
    let most = pct(shift.upper(look.passes()));
    let beyond = shift.estimate > thresholds.limit;
    let reason = match status {
        Status::Fail => format!("{observed}, {limit} % is allowed, and chance is ruled out"),
        Status::Pass if beyond => format!(
            "{observed} in these samples, {limit} % is allowed; a tail differs so much by chance, and {excluded} % \
             {worse} is ruled out"
        ),
        Status::Pass if most < 0.0 => format!("at least {}", series.measure.change(most)),
        Status::Pass => format!("at most {most:.1} % {worse}"),
        _ if beyond && thresholds.limit_binds => {
            format!("{observed}, {limit} % is allowed, but chance may do that")
        }
        _ => format!("may be {most:.1} % {worse}; less than {excluded} % would have to be shown"),
    };
    Check {
        status,
        reason,
        more_launches: (status == Status::Inconclusive).then(|| judged.more_launches(&thresholds)).flatten(),
        effect: Some(effect(series, shift)),
        probability: *probability,
        ..unjudged(series, policy, look)
    }
}

/// Why a series cannot be judged.
#[derive(Debug, Clone, Default)]
pub(super) struct Obstacle {
    pub(super) reason: String,
    /// Launches of the candidate that would remove it.
    pub(super) more_launches: Option<usize>,
    /// Whether the machine is the reason.
    pub(super) machine: bool,
}

impl Obstacle {
    pub(super) fn too_few_launches() -> Obstacle {
        Obstacle { reason: "there are too few launches".to_owned(), ..Obstacle::default() }
    }
}

/// The check of a series that cannot be judged. `shift` has the error that a judgement would have had.
pub(super) fn inconclusive(
    series: &Series,
    shift: Option<&Shift>,
    policy: &Policy,
    look: InterimLook,
    obstacle: &Obstacle,
) -> Check {
    let Obstacle { reason, more_launches, machine } = obstacle.clone();
    let effect = shift.map(|shift| effect(series, shift));
    Check { reason, more_launches, machine, effect, ..unjudged(series, policy, look) }
}

fn unjudged(series: &Series, policy: &Policy, look: InterimLook) -> Check {
    Check {
        measure: series.measure,
        statistic: Some(series.statistic),
        seq_len: series.place.as_ref().and_then(Place::seq_len),
        case: series.place.as_ref().and_then(Place::case).map(str::to_owned),
        status: Status::Inconclusive,
        reason: String::new(),
        more_launches: None,
        machine: false,
        effect: None,
        limit: Some(Limit::RegressionPct(policy.limit_pct(series.measure))),
        false_alarm: Some(look.false_alarm(Family::of(series.measure, series.statistic))),
        probability: None,
    }
}

fn effect(series: &Series, shift: &Shift) -> Effect {
    let direction = series.metric.direction();
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let range = |[a, b]: [f64; 2]| Range { low: a.min(b), high: a.max(b), confidence: CONFIDENCE };
    let logs = [shift.lower(tail), shift.upper(tail)];
    let finite = logs.iter().all(|log| log.is_finite());
    let [baseline, candidate] = series.figures;
    let moved = |from: f64| logs.map(|log| direction.from_slow_log(direction.slow_log(from) + log) - from);
    Effect {
        regression_pct: pct_of_log(shift.estimate, direction),
        interval_pct: finite.then(|| range(logs.map(|log| pct_of_log(log, direction)))),
        baseline,
        candidate,
        interval_units: baseline.filter(|_| finite).map(|baseline| range(moved(baseline))),
        unit: baseline.or(candidate).map(|_| series.metric.unit()),
    }
}
