//! Rule S: a report against blessed sessions. Stored sessions were measured on other days, so nothing can be randomised:
//! a variance between sessions is added to the squared error (a random-effects model with the session as the effect).
//! It is taken as 1 % until five sessions were blessed, and measured from them afterwards. A canary, a fixed computation,
//! shows whether the machine itself has changed.

use super::decide::{JudgedSeries, Obstacle, check, inconclusive};
use super::policy::Policy;
use super::rates::{Family, InterimLook};
use super::series::{self, Series, completed};
use super::verdict::{Check, Measure, Statistic, Status};
use crate::report::{Launch, Report};
use crate::stats::{Direction, ExtraVariance, Ordered, Shift, launch_medians, locate};

/// How much sessions are taken to differ until enough of them were blessed to tell.
const SESSION_DEVIATION: f64 = 0.010;
/// Blessed sessions from which their own difference is taken, and the least that it is taken for.
const SESSIONS_TO_MEASURE: usize = 5;
const LEAST_SESSION_DEVIATION: f64 = 0.004;

/// A regression that is certainly larger than this fails on an unsteady machine too: no noise that leaves launches
/// comparable at all makes a model so much slower.
const BEYOND_DOUBT_PCT: f64 = 25.0;

/// Why a report cannot be judged.
struct Unsteady {
    obstacle: Obstacle,
    /// The regression of a median from which it does not matter, on slow-oriented logarithms. A tail is never beyond
    /// doubt on such a machine: it consists of what disturbs.
    overruled_above: Option<f64>,
}

/// Checks of everything that is compared launch by launch.
pub(super) fn checks(report: &Report, blessed: &[&Report], policy: &Policy, look: InterimLook) -> Vec<Check> {
    let arms: Vec<Vec<&Launch>> = blessed.iter().map(|session| completed(session)).collect();
    let baseline: Vec<&Launch> = arms.concat();
    let launches = completed(report);
    let (series, absent) = series::all(&baseline, &launches, &report.workload.places());
    let sizes: Vec<usize> = arms.iter().map(Vec::len).collect();
    let extra_variance = session_variance(&series, &sizes);
    let too_few = too_few(baseline.len(), launches.len(), policy);
    let unsteady = unsteady(&baseline, &launches, &series, policy);
    let judge = |one: &Series| {
        let shift = Shift::between(&one.baseline, &one.candidate)
            .map(|shift| shift.with_extra_variance(extra_variance));
        let certainly_above =
            |bar: f64| shift.is_some_and(|shift| shift.lower(false_alarm(one, &series, look)) > bar);
        let open = |obstacle: &Obstacle| inconclusive(one, shift.as_ref(), policy, look, obstacle);
        if let Some(obstacle) = &too_few {
            return open(obstacle);
        }
        // Memory does not depend on how steady a machine is.
        if let Some(Unsteady { obstacle, overruled_above }) = &unsteady
            && one.measure != Measure::MemoryPeak
            && !overruled_above.filter(|_| one.statistic == Statistic::P50).is_some_and(certainly_above)
        {
            return open(obstacle);
        }
        if let Some(obstacle) = too_few_samples(one, policy) {
            return open(&obstacle);
        }
        match shift {
            Some(shift) => judged(one, shift, &series, policy, look),
            None => open(&Obstacle::too_few_launches()),
        }
    };
    let mut checks: Vec<Check> = series.iter().map(judge).collect();
    checks.extend(
        absent.into_iter().map(|absent| Check::exact(absent.measure, Status::NotGated, absent.reason)),
    );
    checks
}

fn is_median(series: &Series) -> bool {
    Family::of(series.measure, series.statistic) == Family::Medians
}

/// Series of the same family, among which its false alarms are divided.
fn members(one: &Series, all: &[Series]) -> f64 {
    let family = |series: &Series| Family::of(series.measure, series.statistic);
    all.iter().filter(|other| family(other) == family(one)).count().max(1) as f64
}

/// How often a series may fail though nothing has changed.
fn false_alarm(one: &Series, all: &[Series], look: InterimLook) -> f64 {
    look.false_alarm(Family::of(one.measure, one.statistic)) / members(one, all)
}

fn judged(one: &Series, shift: Shift, all: &[Series], policy: &Policy, look: InterimLook) -> Check {
    let false_alarm = false_alarm(one, all, look);
    let judged = JudgedSeries {
        series: one,
        shift,
        significant: shift.lower(false_alarm) > 0.0,
        // Bonferroni over the family: without randomisation there is no maxT.
        probability: Some((shift.tail_probability() * members(one, all)).min(1.0)),
        false_alarm,
        step: 1,
        both_grow: false,
    };
    check(&judged, policy, look)
}

/// Why there are too few launches for a verdict, and how many are missing.
pub(super) fn too_few(baseline: usize, candidate: usize, policy: &Policy) -> Option<Obstacle> {
    let least = policy.minimum.launches;
    let missing = |launches: usize| least.saturating_sub(launches);
    let (reason, more_launches) = match (missing(baseline), missing(candidate)) {
        (0, 0) => return None,
        (0, more) => (format!("there are {candidate} launches, {least} are needed"), Some(more)),
        _ => (format!("the baseline has {baseline} launches, {least} are needed"), None),
    };
    Some(Obstacle { reason, more_launches, machine: false })
}

/// Why a tail has too few samples, and how many launches are missing.
pub(super) fn too_few_samples(series: &Series, policy: &Policy) -> Option<Obstacle> {
    let (found, least) = (series.samples, policy.minimum.tail_samples);
    let tail = Family::of(series.measure, series.statistic) == Family::Tails;
    let arm = series.baseline.len().min(series.candidate.len()).max(1);
    let per_launch = (found / arm).max(1);
    let limited_by_candidate = series.candidate.len() <= series.baseline.len();
    (tail && found < least).then(|| {
        let more_launches = limited_by_candidate.then(|| (least - found).div_ceil(per_launch));
        let reason = format!("there are {found} samples, a p95 needs {least}");
        Obstacle { reason, more_launches, machine: false }
    })
}

/// What is added to the squared error because sessions differ.
fn session_variance(series: &[Series], sizes: &[usize]) -> ExtraVariance {
    let sessions = sizes.len().max(1) as f64;
    // The candidate is one session, the baseline the mean of several.
    let spread = 1.0 + 1.0 / sessions;
    if sizes.len() < SESSIONS_TO_MEASURE {
        return ExtraVariance { variance: SESSION_DEVIATION.powi(2) * spread, degrees: None };
    }
    let medians = series.iter().filter(|s| is_median(s));
    let variances: Vec<f64> = medians.filter_map(|s| variance_of_sessions(&s.baseline, sizes)).collect();
    // Pooled over series: a single one has only as many degrees of freedom as sessions less one.
    let mean = variances.iter().sum::<f64>() / variances.len().max(1) as f64;
    let variance = mean.max(LEAST_SESSION_DEVIATION.powi(2));
    ExtraVariance { variance: variance * spread, degrees: Some(sessions - 1.0) }
}

/// Variance of the medians of sessions.
fn variance_of_sessions(values: &[f64], sizes: &[usize]) -> Option<f64> {
    let mut rest = values;
    let mut sessions = Vec::new();
    for &size in sizes {
        let (session, others) = rest.split_at_checked(size)?;
        sessions.push(session.to_vec());
        rest = others;
    }
    let centres = launch_medians(&sessions)?;
    let mean = centres.iter().sum::<f64>() / centres.len() as f64;
    let squares: f64 = centres.iter().map(|centre| (centre - mean).powi(2)).sum();
    Some(squares / (centres.len() as f64 - 1.0))
}

/// Why a machine was not steady enough for a stored baseline.
fn unsteady(before: &[&Launch], after: &[&Launch], series: &[Series], policy: &Policy) -> Option<Unsteady> {
    let bars = &policy.steadiness;
    let obstacle = |reason: String, overruled_above| {
        let obstacle = Obstacle { reason, more_launches: None, machine: true };
        Some(Unsteady { obstacle, overruled_above })
    };
    let canary = |arm: &[&Launch]| {
        let times: Vec<f64> = arm.iter().filter_map(|launch| launch.canary_ms).collect();
        let median = Ordered::new(&times, Direction::LowerIsBetter)?.quantile(0.5);
        (median > 0.0).then_some(median)
    };
    let (Some(before), Some(now)) = (canary(before), canary(after)) else {
        return obstacle(
            "there is no canary time, so a slower machine cannot be told from a slower model".to_owned(),
            None,
        );
    };
    let beyond_doubt = (BEYOND_DOUBT_PCT / 100.0).ln_1p();
    let shift = (now / before - 1.0) * 100.0;
    let slower = (now / before).ln();
    if slower.abs() > (bars.canary_shift_pct / 100.0).ln_1p() {
        let allowed = bars.canary_shift_pct;
        let reason = format!(
            "the machine itself changed: its canary shifted by {shift:+.1} %, {allowed} % is allowed"
        );
        // Twice: what slows the machine may slow a model, which is bound by memory, more than the canary.
        return obstacle(reason, Some(beyond_doubt + 2.0 * slower.max(0.0)));
    }
    let dispersion = dispersion_pct(series)?;
    let allowed = bars.dispersion_pct;
    if dispersion <= allowed {
        return None;
    }
    let reason = format!("launches differ by {dispersion:.1} %, {allowed} % is allowed: quieten the machine");
    // The error that a shift states is that of both arms together, which a quiet baseline makes small. By the launches of
    // the candidate alone, the fewest that are judged leave 2.8 deviations open: t(0.05 %, 5) / sqrt(6).
    obstacle(reason, Some(beyond_doubt + 3.0 * (dispersion / 100.0).ln_1p()))
}

/// Per cent by which launches of the candidate differ.
fn dispersion_pct(series: &[Series]) -> Option<f64> {
    let medians = series.iter().filter(|s| is_median(s));
    let mut scales: Vec<f64> =
        medians.filter_map(|s| Some(locate([s.candidate.as_slice()])?.scale.exp_m1() * 100.0)).collect();
    scales.sort_unstable_by(f64::total_cmp);
    // The median over series: one unsteady series does not make an unsteady machine.
    scales.get(scales.len() / 2).copied()
}

/// Per cent by which the launches of a report differ, as its gate sees it; `None` if it has no samples.
pub fn launch_dispersion_pct(report: &Report) -> Option<f64> {
    let launches = completed(report);
    let (series, _) = series::all(&launches, &launches, &report.workload.places());
    dispersion_pct(&series)
}
