//! Rule S: a report against blessed sessions. Nothing can be randomised, so the comparison pays for what it cannot see:
//! sessions differ, and the machine may have changed.

use super::decide::{Judged, check, inconclusive};
use super::policy::Policy;
use super::rates::{Family, Look};
use super::series::{self, Series, completed};
use super::verdict::{Check, Status};
use crate::report::{Launch, Report};
use crate::stats::{Charge, Direction, Ordered, Shift, launch_medians, locate};

/// How much sessions are taken to differ until enough of them were blessed to tell.
const SESSION_DEVIATION: f64 = 0.010;
/// Blessed sessions from which their own difference is taken, and the least that it is taken for.
const SESSIONS_TO_MEASURE: usize = 5;
const LEAST_SESSION_DEVIATION: f64 = 0.004;

/// Checks of everything that is compared launch by launch.
pub(super) fn checks(candidate: &Report, sessions: &[&Report], policy: &Policy, look: Look) -> Vec<Check> {
    let arms: Vec<Vec<&Launch>> = sessions.iter().map(|session| completed(session)).collect();
    let baseline: Vec<&Launch> = arms.concat();
    let launches = completed(candidate);
    let (series, absent) = series::all(&baseline, &launches, &candidate.workload.shapes);
    let sizes: Vec<usize> = arms.iter().map(Vec::len).collect();
    let charge = session_charge(&series, &sizes);
    let obstacle = too_few(baseline.len(), launches.len(), policy)
        .or_else(|| unsteady(&baseline, &launches, &series, policy).map(|reason| (reason, None)));
    let judge = |one: &Series| {
        if let Some((reason, more)) = &obstacle {
            return inconclusive(one, policy, look, reason, *more);
        }
        if let Some((reason, more)) = too_few_samples(one, policy) {
            return inconclusive(one, policy, look, &reason, more);
        }
        match Shift::between(&one.baseline, &one.candidate) {
            Some(shift) => judged(one, shift.charged(charge), &series, policy, look),
            None => inconclusive(one, policy, look, "there are too few launches", None),
        }
    };
    let mut checks: Vec<Check> = series.iter().map(judge).collect();
    checks.extend(
        absent.into_iter().map(|absent| Check::exact(absent.measure, Status::NotGated, absent.reason)),
    );
    checks
}

fn judged(one: &Series, shift: Shift, all: &[Series], policy: &Policy, look: Look) -> Check {
    let family = Family::of(one.measure, one.statistic);
    let members = all.iter().filter(|s| Family::of(s.measure, s.statistic) == family).count();
    let false_alarm = look.false_alarm(family) / members as f64;
    let judged = Judged {
        series: one,
        shift,
        significant: shift.lower(false_alarm) > 0.0,
        probability: Some((shift.tail_probability() * members as f64).min(1.0)),
        false_alarm,
        step: 1,
        both_grow: false,
    };
    check(&judged, policy, look)
}

/// Why there are too few launches for a verdict, and how many are missing.
pub(super) fn too_few(baseline: usize, candidate: usize, policy: &Policy) -> Option<(String, Option<usize>)> {
    let least = policy.minimum.launches;
    let missing = |launches: usize| least.saturating_sub(launches);
    match (missing(baseline), missing(candidate)) {
        (0, 0) => None,
        (0, more) => Some((format!("there are {candidate} launches, {least} are needed"), Some(more))),
        _ => Some((format!("the baseline has {baseline} launches, {least} are needed"), None)),
    }
}

/// Why a tail has too few samples, and how many launches are missing.
pub(super) fn too_few_samples(series: &Series, policy: &Policy) -> Option<(String, Option<usize>)> {
    let (found, least) = (series.samples, policy.minimum.tail_samples);
    let tail = Family::of(series.measure, series.statistic) == Family::Tails;
    let arm = series.baseline.len().min(series.candidate.len()).max(1);
    let per_launch = (found / arm).max(1);
    let limited_by_candidate = series.candidate.len() <= series.baseline.len();
    (tail && found < least).then(|| {
        let more = limited_by_candidate.then(|| (least - found).div_ceil(per_launch));
        (format!("there are {found} samples, a p95 needs {least}"), more)
    })
}

/// What is added to the squared error because sessions differ.
fn session_charge(series: &[Series], sizes: &[usize]) -> Charge {
    let sessions = sizes.len().max(1) as f64;
    let spread = 1.0 + 1.0 / sessions;
    if sizes.len() < SESSIONS_TO_MEASURE {
        return Charge { variance: SESSION_DEVIATION.powi(2) * spread, degrees: None };
    }
    let medians = series.iter().filter(|s| Family::of(s.measure, s.statistic) == Family::Medians);
    let variances: Vec<f64> = medians.filter_map(|s| variance_of_sessions(&s.baseline, sizes)).collect();
    let mean = variances.iter().sum::<f64>() / variances.len().max(1) as f64;
    let variance = mean.max(LEAST_SESSION_DEVIATION.powi(2));
    Charge { variance: variance * spread, degrees: Some(sessions - 1.0) }
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
fn unsteady(
    baseline: &[&Launch],
    candidate: &[&Launch],
    series: &[Series],
    policy: &Policy,
) -> Option<String> {
    let bars = &policy.steadiness;
    let canary = |arm: &[&Launch]| {
        let times: Vec<f64> = arm.iter().filter_map(|launch| launch.canary_ms).collect();
        let median = Ordered::new(&times, Direction::LowerIsBetter)?.quantile(0.5);
        (median > 0.0).then_some(median)
    };
    let (Some(before), Some(now)) = (canary(baseline), canary(candidate)) else {
        return Some(
            "there is no canary time, so a slower machine cannot be told from a slower model".to_owned(),
        );
    };
    let shift = (now / before - 1.0) * 100.0;
    if (now / before).ln().abs() > (bars.canary_shift_pct / 100.0).ln_1p() {
        let allowed = bars.canary_shift_pct;
        return Some(format!(
            "the machine itself changed: its canary shifted by {shift:+.1} %, {allowed} % is allowed"
        ));
    }
    let medians = series.iter().filter(|s| Family::of(s.measure, s.statistic) == Family::Medians);
    let mut scales: Vec<f64> =
        medians.filter_map(|s| Some(locate([s.candidate.as_slice()])?.scale.exp_m1() * 100.0)).collect();
    scales.sort_unstable_by(f64::total_cmp);
    let dispersion = *scales.get(scales.len() / 2)?;
    let allowed = bars.dispersion_pct;
    (dispersion > allowed)
        .then(|| format!("launches differ by {dispersion:.1} %, {allowed} % is allowed: quieten the machine"))
}
