//! What needs no statistics: sizes, residency, numerics, quality, launches that failed. One function each.

use super::policy::Policy;
use super::verdict::{Check, Effect, Limit, Measure, Status};
use crate::report::{LeakVerdict, Quality, QualityFigure, Report};
use crate::stats::{Direction, Unit};

/// A report, the newest session of its baseline and what is allowed.
struct Case<'a> {
    candidate: &'a Report,
    baseline: &'a Report,
    policy: &'a Policy,
}

const RULES: &[fn(&Case<'_>) -> Check] = &[
    failed_launches,
    package_size,
    kv_bytes,
    residency,
    residency_drop,
    verification,
    cosine,
    not_finite,
    kl,
    top1,
    top5,
    perplexity,
    f1_drift,
    ttfa,
    leak,
];

/// All exact checks.
pub(super) fn checks(candidate: &Report, baseline: &Report, policy: &Policy) -> Vec<Check> {
    let case = Case { candidate, baseline, policy };
    let checks = RULES.iter().map(|rule| rule(&case));
    checks.filter(|check| !(candidate.is_of_predictions() && is_of_text(check))).collect()
}

/// Whether a check is about text that is generated, of which there is none to judge.
fn is_of_text(check: &Check) -> bool {
    let of_text = matches!(
        check.measure,
        Measure::KvBytes
            | Measure::Kl
            | Measure::Top1
            | Measure::Top5
            | Measure::Perplexity
            | Measure::F1Drift
            | Measure::Ttfa
    );
    of_text && check.status == Status::NotGated
}

fn pass_if(good: bool) -> Status {
    if good { Status::Pass } else { Status::Fail }
}

/// What was not recorded is not judged, unless the baseline has it: then it cannot be told.
fn unrecorded(measure: Measure, in_baseline: bool, reason: &str) -> Check {
    match in_baseline {
        true => Check::exact(measure, Status::Inconclusive, format!("{reason}, but the baseline has it")),
        false => Check::exact(measure, Status::NotGated, reason),
    }
}

/// Something exact that may grow by some per cent.
fn growth(measure: Measure, values: [f64; 2], unit: Unit, limit: f64) -> Check {
    let [baseline, candidate] = values;
    if baseline <= 0.0 {
        return Check::exact(measure, Status::NotGated, "the baseline has none");
    }
    let regression = compared(values, Direction::LowerIsBetter);
    let reason = measure.change(regression);
    Check {
        effect: Some(exactly(regression, [Some(baseline), Some(candidate)], Some(unit))),
        limit: Some(Limit::RegressionPct(limit)),
        // 1e-9: what meets its limit exactly must not fail by the rounding of a quotient.
        ..Check::exact(measure, pass_if(regression <= limit + 1e-9), reason)
    }
}

fn compared([baseline, candidate]: [f64; 2], direction: Direction) -> f64 {
    match direction {
        Direction::LowerIsBetter => (candidate / baseline - 1.0) * 100.0,
        Direction::HigherIsBetter => (1.0 - candidate / baseline) * 100.0,
    }
}

fn exactly(regression_pct: f64, [baseline, candidate]: [Option<f64>; 2], unit: Option<Unit>) -> Effect {
    Effect { regression_pct, interval_pct: None, baseline, candidate, interval_units: None, unit }
}

fn failed_launches(case: &Case<'_>) -> Check {
    let total = case.candidate.launches.len();
    let count = case.candidate.failures().count();
    let reason = match case.candidate.failures().next() {
        Some((launch, failure)) => format!("{count} of {total}: launch {} {failure}", launch.index),
        None => format!("all {total} launches completed"),
    };
    let check = Check::exact(Measure::FailedLaunches, pass_if(count == 0), reason);
    Check { limit: Some(Limit::AtMost(0.0)), ..check }
}

fn package_size(case: &Case<'_>) -> Check {
    let sizes = [case.baseline, case.candidate].map(|report| report.subject.package_bytes as f64);
    growth(Measure::PackageSize, sizes, Unit::Bytes, case.policy.regression.package_size)
}

fn kv_bytes(case: &Case<'_>) -> Check {
    let bytes = [case.baseline, case.candidate].map(|report| report.subject.kv_bytes_per_token as f64);
    growth(Measure::KvBytes, bytes, Unit::Bytes, case.policy.regression.kv_bytes)
}

fn residency(case: &Case<'_>) -> Check {
    let Some(found) = &case.candidate.residency else {
        let note = &case.candidate.residency_note;
        return unrecorded(Measure::Residency, case.baseline.residency.is_some(), note);
    };
    let (share, floor) = (found.share * 100.0, case.policy.residency.floor_pct);
    let basis = if found.verified { "verified by run times" } else { "as planned, not verified" };
    let reason = format!("{share:.1} % of the work on the Neural Engine, {basis}");
    let check = Check::exact(Measure::Residency, pass_if(share >= floor), reason);
    Check { limit: Some(Limit::AtLeast(floor)), ..check }
}

/// Plans of different builds of a system are not compared.
fn residency_drop(case: &Case<'_>) -> Check {
    let measure = Measure::ResidencyDrop;
    let (Some(now), Some(before)) = (&case.candidate.residency, &case.baseline.residency) else {
        let which = if case.candidate.residency.is_none() { "the report" } else { "the baseline" };
        return Check::exact(measure, Status::NotGated, format!("{which} has no residency"));
    };
    // Another build brings another planner, whose drop is not the package's.
    let builds = [case.baseline, case.candidate].map(|report| report.machine.os_build.clone());
    if builds[0] != builds[1] || builds[0].is_none() {
        let [before, now] = builds.map(|build| build.unwrap_or_else(|| "unknown".to_owned()));
        let reason = format!("the system's build is {now}, the baseline's {before}: plans are not compared");
        return Check::exact(measure, Status::NotGated, reason);
    }
    let shares = [before.share, now.share];
    if !shares.iter().all(|share| share.is_finite()) || before.share <= 0.0 {
        return Check::exact(measure, Status::NotGated, "the baseline has nothing on the Neural Engine");
    }
    let drop = compared(shares, Direction::HigherIsBetter);
    let limit = case.policy.residency.max_drop_pct;
    let [before, now] = shares.map(|share| share * 100.0);
    let reason = format!("{now:.1} % of the work on the Neural Engine, {before:.1} % before");
    Check {
        effect: Some(exactly(drop, shares.map(Some), Some(Unit::Share))),
        limit: Some(Limit::RegressionPct(limit)),
        ..Check::exact(measure, pass_if(drop <= limit + 1e-9), reason)
    }
}

const UNVERIFIED: &str = "no verification of these packages is recorded";

fn verification(case: &Case<'_>) -> Check {
    let Some(found) = case.candidate.verified() else {
        return unrecorded(Measure::Verification, case.baseline.verified().is_some(), UNVERIFIED);
    };
    let reason = match found.failures.first() {
        _ if found.passed => match &found.not_judged {
            Some(why) => return Check::exact(Measure::Verification, Status::NotGated, why.clone()),
            None => format!("{} positions compared", found.positions),
        },
        Some(first) => format!("{} thresholds missed, the first: {first}", found.failures.len()),
        None => "it did not pass".to_owned(),
    };
    Check::exact(Measure::Verification, pass_if(found.passed), reason)
}

fn cosine(case: &Case<'_>) -> Check {
    let Some(found) = case.candidate.verified() else {
        return unrecorded(Measure::Cosine, case.baseline.verified().is_some(), UNVERIFIED);
    };
    let least = case.policy.min_cosine;
    let (status, reason) = match found.cosine_min {
        Some(cosine) => (pass_if(cosine >= least), format!("{cosine:.6} at the worst position")),
        None if found.not_judged.is_some() => {
            (Status::NotGated, "only quality was judged, not whether the packages are right".to_owned())
        }
        None => (Status::Fail, "no logits were finite".to_owned()),
    };
    Check { limit: Some(Limit::AtLeast(least)), ..Check::exact(Measure::Cosine, status, reason) }
}

fn not_finite(case: &Case<'_>) -> Check {
    let measure = Measure::NotFinite;
    let limit = Some(Limit::AtMost(0.0));
    let soak = case.candidate.soak.as_ref();
    // A NaN in the long run fails, whatever `verify` saw on its few prompts.
    if let Some(what) = soak.and_then(|soak| soak.not_finite.as_ref()) {
        return Check { limit, ..Check::exact(measure, Status::Fail, format!("in the long run: {what}")) };
    }
    let Some(found) = case.candidate.verified() else {
        return match soak {
            Some(_) => Check { limit, ..Check::exact(measure, Status::Pass, "none in the long run") },
            None => unrecorded(measure, case.baseline.verified().is_some(), UNVERIFIED),
        };
    };
    let reason = format!("{} NaN and {} infinite logits", found.nan, found.inf);
    Check { limit, ..Check::exact(measure, pass_if(found.nan + found.inf == 0), reason) }
}

/// What the packages lose against the checkpoint, by the limits that `verify` recorded.
fn quality(case: &Case<'_>, measure: Measure, figure: QualityFigure) -> Check {
    let of =
        |report: &Report| report.quality_loss()?.checks().into_iter().find(|check| check.figure == figure);
    let Some(found) = of(case.candidate) else {
        let reason = match case.candidate.quality_loss() {
            Some(_) => "no text was given to `verify`",
            None => "no loss of quality is recorded",
        };
        return unrecorded(measure, of(case.baseline).is_some(), reason);
    };
    let shown = |value: Option<f64>| value.map_or_else(|| "not computable".to_owned(), |v| figure.shown(v));
    let before = of(case.baseline).map(|check| format!(", {} before", shown(check.found)));
    let reason = format!("{}{}", shown(found.found), before.unwrap_or_default());
    let limit = match figure.is_at_most() {
        true => Limit::AtMost(found.limit),
        false => Limit::AtLeast(found.limit),
    };
    Check { limit: Some(limit), ..Check::exact(measure, pass_if(found.is_good()), reason) }
}

fn kl(case: &Case<'_>) -> Check {
    quality(case, Measure::Kl, QualityFigure::Kl)
}

fn top1(case: &Case<'_>) -> Check {
    quality(case, Measure::Top1, QualityFigure::Top1)
}

fn top5(case: &Case<'_>) -> Check {
    quality(case, Measure::Top5, QualityFigure::Top5)
}

fn perplexity(case: &Case<'_>) -> Check {
    quality(case, Measure::Perplexity, QualityFigure::Perplexity)
}

const UNEVALUATED: &str = "no evaluation of these packages is recorded";

/// What `eval` found about the calls of the very packages of the report.
fn evaluated(report: &Report) -> Option<&Quality> {
    let is_about = |found: &&Quality| found.package_digests == report.subject.package_digests;
    report.quality.as_ref().filter(|found| found.has_cases()).filter(is_about)
}

fn f1_drift(case: &Case<'_>) -> Check {
    let Some(found) = evaluated(case.candidate) else {
        return unrecorded(Measure::F1Drift, evaluated(case.baseline).is_some(), UNEVALUATED);
    };
    let limit = case.policy.max_f1_drift;
    let (status, reason) = match found.f1_drift {
        Some(drift) => {
            (pass_if(drift <= limit + 1e-12), format!("F1 differs by {drift:.4} between sequence lengths"))
        }
        None => (Status::NotGated, "there are no two sequence lengths that took the same cases".to_owned()),
    };
    Check { limit: Some(Limit::AtMost(limit)), ..Check::exact(Measure::F1Drift, status, reason) }
}

fn ttfa(case: &Case<'_>) -> Check {
    let Some(found) = evaluated(case.candidate) else {
        return unrecorded(Measure::Ttfa, evaluated(case.baseline).is_some(), UNEVALUATED);
    };
    let limit = case.policy.max_ttfa_p95_tokens;
    let (status, reason) = match found.ttfa_p95 {
        Some(tokens) => (pass_if(tokens <= limit), format!("{tokens:.1} tokens to the first action")),
        // A case without a call counts as infinitely late, so that a p95 among those is not a number.
        None if found.expects_calls() => {
            (Status::Fail, "more than a twentieth of the cases have no valid call at all".to_owned())
        }
        None => (Status::NotGated, "no case expects an action".to_owned()),
    };
    Check { limit: Some(Limit::AtMost(limit)), ..Check::exact(Measure::Ttfa, status, reason) }
}

fn leak(case: &Case<'_>) -> Check {
    let memory = case.candidate.soak.as_ref().and_then(|soak| soak.memory.as_ref());
    let Some(memory) = memory else {
        return Check::exact(Measure::Leak, Status::NotGated, "there was no long run that tells of memory");
    };
    let leaks = memory.verdict == LeakVerdict::Leak;
    let grown = memory.growth_bytes / 1e6;
    Check::exact(Measure::Leak, pass_if(!leaks), format!("{grown:+.1} MB over the long run"))
}

#[cfg(test)]
mod tests {
    use super::super::policy::testing::policy;
    use super::*;
    use crate::report::{FunctionResidency, QualityLoss, Residency, Verification, testing};

    fn verification(cosine: Option<f64>, nan: usize) -> Verification {
        serde_json::from_value(serde_json::json!({
            "schema": "anemeter.verification/1", "tool_version": "0.1.0", "package_digests": ["xxh3:01"],
            "checkpoint_digest": "xxh3:02", "checkpoint_is_the_exported_one": true, "passed": true,
            "cosine_min": cosine, "drift_cosine_min": null, "nan": nan, "inf": 0, "reference": "candle",
            "numerics": "fast", "compared": [], "prompts": 8, "positions": 256, "failures": [],
        }))
        .unwrap()
    }

    fn quality(f1_drift: Option<f64>, ttfa_p95: Option<f64>, without_call: usize) -> Quality {
        let quality = serde_json::json!({
            "seq_len": 128, "cases": 20, "too_long": 0, "f1": 0.9, "name_f1": 0.95, "exact": 0.8,
            "without_call": without_call, "ttfa_p50": ttfa_p95, "ttfa_p95": ttfa_p95,
        });
        serde_json::from_value(serde_json::json!({
            "schema": "anemeter.quality/1", "tool_version": "0.1.0", "package_digests": ["xxh3:01"],
            "cases_digest": "xxh3:07", "cases": 20, "runtime": "cpu", "max_tokens": 64, "kv": "io",
            "per_seq_len": [quality], "f1_drift": f1_drift, "ttfa_p50": ttfa_p95, "ttfa_p95": ttfa_p95,
        }))
        .unwrap()
    }

    fn judged(measure: Measure, change: impl Fn(&mut Report, &mut Report)) -> (Status, String) {
        let mut baseline = testing::with_launches(vec![testing::launch(0, 1.0)]);
        let mut candidate = baseline.clone();
        change(&mut baseline, &mut candidate);
        let check = checks(&candidate, &baseline, &policy()).into_iter().find(|c| c.measure == measure);
        check.map(|check| (check.status, check.reason)).unwrap()
    }

    fn resident(share: f64) -> Option<Residency> {
        let function = FunctionResidency {
            function: "decode".to_owned(),
            package: "model.mlpackage".to_owned(),
            share: Some(share),
            by_count: None,
            eligible: None,
            unplanned: 0,
            transitions: 2,
            not_on_ane: Vec::new(),
        };
        Some(Residency { share, verified: false, functions: vec![function] })
    }

    #[test]
    fn sizes_may_grow_by_their_limit() {
        let size = |factor: f64| {
            judged(Measure::PackageSize, move |_, c| {
                c.subject.package_bytes = (269_000_000.0 * factor) as u64;
            })
        };
        assert_eq!(size(1.05).0, Status::Pass);
        assert_eq!(size(1.06), (Status::Fail, "6.0 % larger".to_owned()));
        assert_eq!(size(0.5).0, Status::Pass);
        assert_eq!(judged(Measure::KvBytes, |_, c| c.subject.kv_bytes_per_token += 1).0, Status::Fail);
        assert_eq!(judged(Measure::KvBytes, |b, _| b.subject.kv_bytes_per_token = 0).0, Status::NotGated);
    }

    #[test]
    fn residency_has_a_floor_and_may_not_drop() {
        let both = |before: f64, now: f64| {
            move |b: &mut Report, c: &mut Report| {
                (b.residency, c.residency) = (resident(before), resident(now));
                (b.machine.os_build, c.machine.os_build) = (Some("24F74".into()), Some("24F74".into()));
            }
        };
        assert_eq!(judged(Measure::Residency, both(0.95, 0.86)).0, Status::Pass);
        assert_eq!(judged(Measure::Residency, both(0.95, 0.79)).0, Status::Fail);
        assert_eq!(judged(Measure::ResidencyDrop, both(1.0, 0.9)).0, Status::Pass);
        assert_eq!(judged(Measure::ResidencyDrop, both(0.99, 0.88)).0, Status::Fail);
        let other_build = judged(Measure::ResidencyDrop, |b, c| {
            both(0.99, 0.5)(b, c);
            c.machine.os_build = Some("25A1".into());
        });
        assert_eq!(other_build.0, Status::NotGated);
        assert!(other_build.1.contains("25A1, the baseline's 24F74"));
        assert_eq!(judged(Measure::Residency, |_, _| ()).0, Status::NotGated);
        assert_eq!(judged(Measure::Residency, |b, _| b.residency = resident(0.9)).0, Status::Inconclusive);
    }

    #[test]
    fn numerics_come_from_the_verification_of_the_same_packages() {
        let with = |cosine: Option<f64>, nan: usize| {
            move |_: &mut Report, c: &mut Report| {
                c.verification = Some(verification(cosine, nan));
            }
        };
        assert_eq!(judged(Measure::Cosine, with(Some(0.9991), 0)).0, Status::Pass);
        assert_eq!(judged(Measure::Cosine, with(Some(0.9989), 0)).0, Status::Fail);
        assert_eq!(judged(Measure::Cosine, with(None, 5)).0, Status::Fail);
        let expected = (Status::Fail, "5 NaN and 0 infinite logits".into());
        assert_eq!(judged(Measure::NotFinite, with(None, 5)), expected);
        assert_eq!(judged(Measure::Cosine, |_, _| ()), (Status::NotGated, UNVERIFIED.to_owned()));
        let lost = judged(Measure::Cosine, |b, _| b.verification = Some(verification(Some(1.0), 0)));
        assert_eq!(lost.0, Status::Inconclusive);
        let others = judged(Measure::Cosine, |_, c| {
            c.verification = Some(verification(Some(1.0), 0));
            c.subject.package_digests = vec!["xxh3:99".to_owned()];
        });
        assert_eq!(others.0, Status::NotGated);
        let failed = judged(Measure::Verification, |_, c| {
            let mut found = verification(Some(1.0), 0);
            (found.passed, found.failures) = (false, vec!["io 512 decode: kl".to_owned()]);
            c.verification = Some(found);
        });
        assert_eq!(failed, (Status::Fail, "1 thresholds missed, the first: io 512 decode: kl".to_owned()));
    }

    #[test]
    fn loss_is_held_to_the_limits_that_were_recorded() {
        let with = |kl: f64, limit: f64| {
            move |_: &mut Report, c: &mut Report| {
                let mut loss: QualityLoss = testing::quality_loss();
                (loss.kl, loss.limits.kl) = (Some(kl), limit);
                let found = verification(Some(1.0), 0);
                c.verification = Some(Verification { quality: Some(loss), ..found });
            }
        };
        assert_eq!(judged(Measure::Kl, with(0.011, 0.1)), (Status::Pass, "0.0110 nats".to_owned()));
        assert_eq!(judged(Measure::Kl, with(0.011, 0.01)).0, Status::Fail);
        assert_eq!(judged(Measure::Top1, with(0.0, 0.1)).0, Status::Pass);
        assert_eq!(judged(Measure::Perplexity, with(0.0, 0.1)).1, "+0.70 %");
        assert_eq!(judged(Measure::Kl, |_, _| ()).0, Status::NotGated);
        let lost = judged(Measure::Kl, |b, c| with(0.0, 0.1)(c, b));
        assert_eq!(lost.0, Status::Inconclusive);
    }

    #[test]
    fn what_was_not_judged_is_not_gated() {
        let only_quality = |_: &mut Report, c: &mut Report| {
            let not_judged = Some("no place for it".to_owned());
            c.verification = Some(Verification { not_judged, ..verification(None, 0) });
        };
        assert_eq!(judged(Measure::Cosine, only_quality).0, Status::NotGated);
        assert_eq!(
            judged(Measure::Verification, only_quality),
            (Status::NotGated, "no place for it".to_owned())
        );
    }

    #[test]
    fn quality_is_held_to_its_limits() {
        let with = |drift: Option<f64>, ttfa: Option<f64>, without_call: usize| {
            move |_: &mut Report, c: &mut Report| c.quality = Some(quality(drift, ttfa, without_call))
        };
        assert_eq!(judged(Measure::F1Drift, with(Some(0.01), Some(20.0), 0)).0, Status::Pass);
        assert_eq!(judged(Measure::F1Drift, with(Some(0.011), Some(20.0), 0)).0, Status::Fail);
        assert_eq!(judged(Measure::F1Drift, with(None, Some(20.0), 0)).0, Status::NotGated);
        assert_eq!(judged(Measure::Ttfa, with(None, Some(25.0), 0)).0, Status::Pass);
        assert_eq!(judged(Measure::Ttfa, with(None, Some(25.5), 0)).0, Status::Fail);
        assert_eq!(judged(Measure::Ttfa, with(None, None, 3)).0, Status::Fail);
        assert_eq!(judged(Measure::Ttfa, with(None, None, 0)).0, Status::NotGated);
        let only_a_text = judged(Measure::Ttfa, |_, c| {
            c.quality = Some(Quality { cases: 0, ..quality(None, None, 0) });
        });
        assert_eq!(only_a_text, (Status::NotGated, UNEVALUATED.to_owned()));
    }

    #[test]
    fn a_launch_that_failed_fails() {
        let failed = judged(Measure::FailedLaunches, |_, c| *c = testing::report());
        assert_eq!(failed, (Status::Fail, "1 of 3: launch 2 ended early: signal 9".to_owned()));
        assert_eq!(judged(Measure::FailedLaunches, |_, _| ()).0, Status::Pass);
    }
}
