//! Verdicts over whole reports, with noise from a seed.

use super::*;
use crate::report::{self, Launch, Metric, testing};
use crate::stats::Percentile;

const SEQ_LENS: [usize; 2] = [128, 512];

/// A report whose launches differ by about `deviation`; times are multiplied by `factor(seq_len)`.
fn noisy(seed: u64, launches: usize, deviation: f64, factor: impl Fn(usize) -> f64) -> Report {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut normal = move || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    let mut launch = |index: usize| -> Launch {
        let offset = deviation * normal();
        let slots: Vec<usize> = (0..5).flat_map(|_| SEQ_LENS).collect();
        let requests = slots.iter().enumerate().map(|(slot, &seq_len)| {
            let scale = (offset + 0.005 * normal()).exp() * seq_len as f64 / 128.0 * factor(seq_len);
            testing::request(slot, seq_len, scale)
        });
        Launch { requests: requests.collect(), ..testing::launch(index, 1.0) }
    };
    testing::with_launches((0..launches).map(&mut launch).collect())
}

fn same(_: usize) -> f64 {
    1.0
}

fn sessions() -> Vec<Report> {
    (0..3).map(|session| of_other_packages(noisy(100 + session, 8, 0.008, same))).collect()
}

/// The same as measured with other packages, so that a difference is one of the model.
fn of_other_packages(mut report: Report) -> Report {
    report.subject.package_digests = vec!["xxh3:00".to_owned()];
    report
}

fn options(look: InterimLook) -> Options {
    Options { today: Date::parse("2026-05-01").unwrap(), look, allow_cross_hardware: false }
}

fn policy() -> Policy {
    let mut policy = policy::testing::policy();
    policy.profile = "linux-test-2c-24gb".to_owned();
    policy
}

fn judged(candidate: &Report) -> Verdict {
    let sessions = sessions();
    let sessions: Vec<&Report> = sessions.iter().collect();
    judge(candidate, &sessions, &policy(), &options(InterimLook::only())).unwrap()
}

fn find(verdict: &Verdict, id: &str) -> Check {
    let found = verdict.checks.iter().find(|check| check.id() == id);
    found
        .unwrap_or_else(|| panic!("{id} in {:?}", verdict.checks.iter().map(Check::id).collect::<Vec<_>>()))
        .clone()
}

#[test]
fn no_change_passes() {
    let verdict = judged(&noisy(1, 10, 0.008, same));
    let problems: Vec<_> = verdict.checks.iter().filter(|c| c.status == Status::Fail).collect();
    assert_eq!(verdict.outcome, Outcome::Pass, "{problems:?}");
    let check = find(&verdict, "ttft.p50.128");
    let effect = check.effect.unwrap();
    let interval = effect.interval_pct.unwrap();
    assert!(interval.low < effect.regression_pct && effect.regression_pct < interval.high);
    assert!((effect.baseline.unwrap() - 10.0).abs() < 0.5, "{effect:?}");
    assert_eq!(check.limit, Some(Limit::RegressionPct(5.0)));
    assert!((check.false_alarm.unwrap() - 0.003).abs() < 1e-12);
    let (before, after) = (&verdict.baseline, &verdict.candidate);
    assert_eq!((before.sessions, before.launches, after.launches), (3, 24, 10));
}

#[test]
fn a_regression_at_one_seq_len_fails_there_and_only_there() {
    let verdict = judged(&noisy(2, 10, 0.008, |seq_len| if seq_len == 512 { 1.12 } else { 1.0 }));
    assert_eq!(verdict.outcome, Outcome::Fail);
    assert_eq!(find(&verdict, "ttft.p50.512").status, Status::Fail);
    assert_eq!(find(&verdict, "tps.p50.512").status, Status::Fail);
    assert_eq!(find(&verdict, "ttft.p50.128").status, Status::Pass);
    let effect = find(&verdict, "tps.p50.512").effect.unwrap();
    assert!(effect.regression_pct > 8.0 && effect.candidate < effect.baseline, "{effect:?}");
    let units = effect.interval_units.unwrap();
    assert!(units.low < units.high && units.high < 0.0, "fewer tokens per second: {units:?}");
}

#[test]
fn an_improvement_passes() {
    assert_eq!(judged(&noisy(3, 10, 0.008, |_| 0.8)).outcome, Outcome::Pass);
}

#[test]
fn few_launches_and_unsteady_machines_are_inconclusive_with_a_reason() {
    let few = judged(&noisy(4, 3, 0.008, same));
    let check = find(&few, "ttft.p50.128");
    let expected = (Outcome::Inconclusive, Status::Inconclusive, Some(3));
    assert_eq!((few.outcome, check.status, check.more_launches), expected);
    assert_eq!(check.reason, "there are 3 launches, 6 are needed");
    assert_eq!(few.more_launches(), Some(3));

    let mut hot = noisy(5, 10, 0.008, |_| 1.3);
    hot.launches.iter_mut().for_each(|launch| launch.canary_ms = Some(1.6));
    let verdict = judged(&hot);
    assert_eq!(verdict.outcome, Outcome::Inconclusive, "a slower machine is not a slower model");
    assert!(find(&verdict, "tps.p95.512").reason.contains("its canary shifted by +6.7 %, 2 % is allowed"));
    assert!(verdict.is_open_by_machine() && verdict.more_launches().is_none());
    assert!(!few.is_open_by_machine());

    // What may be said of the shift has the error of two sessions, whether it is judged or not.
    let interval = |report: &Report| {
        let range = find(&judged(report), "ttft.p50.128").effect.unwrap().interval_pct.unwrap();
        range.high - range.low
    };
    let mut cool = hot.clone();
    cool.launches.iter_mut().for_each(|launch| launch.canary_ms = Some(1.5));
    assert_eq!(interval(&hot), interval(&cool));

    let restless = judged(&noisy(6, 10, 0.08, same));
    assert_eq!(restless.outcome, Outcome::Inconclusive);
    assert!(find(&restless, "ttft.p50.128").reason.contains("quieten the machine"));

    let far_worse = judged(&noisy(6, 10, 0.08, |_| 2.0));
    assert_eq!(far_worse.outcome, Outcome::Fail, "no such noise makes a model twice as slow");

    let mut silent = noisy(5, 10, 0.008, same);
    silent.launches.iter_mut().for_each(|launch| launch.canary_ms = None);
    assert_eq!(judged(&silent).outcome, Outcome::Inconclusive);
}

#[test]
fn between_the_bars_it_says_how_many_launches_would_do() {
    let session = of_other_packages(noisy(400, 8, 0.02, same));
    let open = |seed: u64| {
        let candidate = noisy(seed, 6, 0.02, |_| 1.055);
        let verdict = judge(&candidate, &[&session], &policy(), &options(InterimLook::only())).unwrap();
        let check = find(&verdict, "ttft.p50.128");
        let steady = !check.reason.contains("quieten the machine");
        (check.status == Status::Inconclusive && steady).then_some(check)
    };
    let open: Vec<Check> = (0..20).filter_map(open).collect();
    assert!(!open.is_empty());
    for check in &open {
        let slower = check.reason.contains("5 % is allowed, but chance may do that");
        assert!(slower || check.reason.contains("less than 8 % would have to be shown"), "{check:?}");
    }
    assert!(open.iter().any(|check| check.more_launches.is_some_and(|more| more > 0)), "{open:?}");
}

#[test]
fn more_sessions_measure_how_much_sessions_differ() {
    let candidate = noisy(8, 10, 0.002, same);
    let width = |count: u64| {
        let sessions: Vec<Report> = (0..count).map(|s| noisy(300 + s, 8, 0.002, same)).collect();
        let sessions: Vec<&Report> = sessions.iter().collect();
        let verdict = judge(&candidate, &sessions, &policy(), &options(InterimLook::only())).unwrap();
        let interval = find(&verdict, "ttft.p50.128").effect.unwrap().interval_pct.unwrap();
        interval.high - interval.low
    };
    assert!(width(1) > width(3) && width(3) > width(5));
}

#[test]
fn a_baseline_that_is_no_baseline_gives_no_verdict() {
    let candidate = noisy(9, 10, 0.008, same);
    let judge = |sessions: &[&Report]| judge(&candidate, sessions, &policy(), &options(InterimLook::only()));
    assert_eq!(judge(&[]), Err(GateError::NoBaseline));
    let good = noisy(10, 8, 0.008, same);
    let mut empty = good.clone();
    empty.launches.clear();
    let refused = judge(&[&good, &empty]).unwrap_err().to_string();
    assert_eq!(refused, "session 2 of 2 of the baseline: has no launches");
    let mut broken = good.clone();
    broken.launches[3].requests[0].ttft_ms = f64::NAN;
    assert!(
        judge(&[&broken])
            .unwrap_err()
            .to_string()
            .starts_with("the baseline: has a TTFT of NaN ms in launch 3")
    );
    let mut other = good;
    other.header.hardware_profile_key = "apple-m2".to_owned();
    assert!(matches!(judge(&[&other]), Err(GateError::NotComparable(_))));
}

#[test]
fn crossing_hardware_is_loud() {
    let mut candidate = noisy(11, 10, 0.008, same);
    candidate.header.hardware_profile_key = "apple-m2".to_owned();
    let sessions = sessions();
    let sessions: Vec<&Report> = sessions.iter().collect();
    let options = Options { allow_cross_hardware: true, ..options(InterimLook::only()) };
    let verdict = judge(&candidate, &sessions, &policy(), &options).unwrap();
    assert!(verdict.cross_hardware);
    let warnings = verdict.warnings;
    assert!(warnings.iter().any(|w| w.starts_with("CROSS-HARDWARE: speeds of apple-m2")), "{warnings:?}");
}

/// Launches of two packages in one session that heats up: later launches are slower, whichever package they are of.
fn interleaved(order: &[Arm], factor: f64) -> [Report; 2] {
    let heat = |place: usize| 0.05 * (place as f64 / order.len() as f64);
    let arm = |which: Arm, seed: u64, factor: f64| {
        let mut report = noisy(seed, order.iter().filter(|a| **a == which).count(), 0.008, |_| factor);
        let places = order.iter().enumerate().filter(|(_, a)| **a == which).map(|(place, _)| place);
        for (launch, place) in report.launches.iter_mut().zip(places) {
            launch.requests.iter_mut().for_each(|request| {
                request.ttft_ms *= heat(place).exp();
                request.steps_ms.iter_mut().for_each(|step| *step *= heat(place).exp());
            });
        }
        report.figures = report::figures(&report.launches);
        report
    };
    [of_other_packages(arm(Arm::Baseline, 20, 1.0)), arm(Arm::Candidate, 21, factor)]
}

#[test]
fn interleaved_launches_tell_a_regression_from_heat() {
    let order = draw_order(5, 3);
    let run = |factor: f64| {
        let [a, b] = interleaved(&order, factor);
        paired(&a, &b, &order, &policy(), &options(InterimLook::only())).unwrap()
    };
    let same = run(1.0);
    assert_eq!(
        (same.outcome, same.rule),
        (Outcome::Pass, Rule::Paired),
        "{:?}",
        same.with(Status::Inconclusive).collect::<Vec<_>>()
    );
    let slower = run(1.10);
    let check = find(&slower, "ttft.p50.128");
    assert_eq!((slower.outcome, check.status), (Outcome::Fail, Status::Fail));
    assert!(check.probability.unwrap() <= 0.003, "{check:?}");
    assert_eq!(find(&slower, "load.p50").status, Status::Pass);
}

#[test]
fn an_early_look_can_only_pass() {
    let order = draw_order(3, 4);
    let early = |factor: f64| {
        let [a, b] = interleaved(&order, factor);
        paired(&a, &b, &order, &policy(), &options(InterimLook::early())).unwrap().outcome
    };
    assert_eq!(early(1.5), Outcome::Inconclusive);
    assert_eq!(early(0.97), Outcome::Pass);
}

#[test]
fn an_order_must_be_the_one_that_ran() {
    let order = draw_order(3, 4);
    let [a, mut b] = interleaved(&order, 1.0);
    let run = |a: &Report, b: &Report, order: &[Arm]| {
        paired(a, b, order, &policy(), &options(InterimLook::only())).map_err(|error| error.to_string())
    };
    let short = run(&a, &b, &order[..8]).unwrap_err();
    assert_eq!(short, "the order of launches has 8 places, but there are 6 and 6 launches");
    let sorted = [[Arm::Baseline; 6], [Arm::Candidate; 6]].concat();
    assert!(run(&a, &b, &sorted).unwrap_err().contains("blocks of four"));
    b.launches[2].outcome = report::Outcome::Failed(report::Failure::TimedOut(1));
    let verdict = run(&a, &b, &order).unwrap();
    assert_eq!(find(&verdict, "failed_launches").status, Status::Fail);
    assert_eq!(find(&verdict, "ttft.p50.128").reason, "there are 5 launches, 6 are needed");
}

#[test]
fn verdicts_survive_a_round_trip() {
    let verdict = judged(&noisy(12, 10, 0.008, |_| 1.1));
    let text = serde_json::to_string(&verdict).unwrap();
    let read: Verdict = serde_json::from_str(&text).unwrap();
    assert_eq!((read.outcome, read.checks.len()), (verdict.outcome, verdict.checks.len()));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["schema"], SCHEMA);
}

#[test]
fn a_report_without_second_tokens_is_judged_by_its_first() {
    let without_steps = |mut report: Report| {
        for request in report.launches.iter_mut().flat_map(|launch| &mut launch.requests) {
            request.steps_ms.clear();
        }
        report
    };
    let (candidate, session) =
        (without_steps(noisy(13, 10, 0.008, same)), without_steps(noisy(14, 8, 0.008, same)));
    let verdict = judge(&candidate, &[&session], &policy(), &options(InterimLook::only())).unwrap();
    assert_eq!(find(&verdict, "tps").status, Status::NotGated);
    assert_eq!(find(&verdict, "ttft.p50.128").status, Status::Pass);
    assert!(Metric::Tps.of_request(&candidate.launches[0].requests[0]).is_empty());
}

#[test]
fn the_same_packages_are_never_called_a_regression_of_the_model() {
    let session = noisy(100, 8, 0.008, same);
    let mut later = noisy(15, 10, 0.008, |_| 1.12);
    later.header.created = "2026-05-01T12:00:00Z".to_owned();
    let against =
        |candidate: &Report| judge(candidate, &[&session], &policy(), &options(InterimLook::only())).unwrap();
    let slower = against(&later);
    assert_eq!((slower.outcome, slower.same_packages), (Outcome::Inconclusive, true));
    let reason = find(&slower, "ttft.p50.128").reason;
    assert!(reason.starts_with("the same packages: the machine changed, not the model: 1"), "{reason}");
    later.runtime.slowed_down_pct = Some(12);
    assert_eq!(against(&later).outcome, Outcome::Fail, "what was slowed down on purpose is found");
    let itself = against(&session);
    assert_eq!(itself.outcome, Outcome::Pass);
    assert!(itself.warnings.iter().any(|w| w.contains("compared with itself")), "{:?}", itself.warnings);
}

#[test]
fn a_tail_does_not_fail_where_launches_differ_too_much_to_tell() {
    for seed in 0..20 {
        let mut restless = noisy(seed, 10, 0.6, |_| 1.2);
        for launch in &mut restless.launches {
            // One request in five took eight times as long.
            for request in launch.requests.iter_mut().step_by(5) {
                request.ttft_ms *= 8.0;
                request.steps_ms.iter_mut().for_each(|step| *step *= 8.0);
            }
        }
        let verdict = judged(&restless);
        assert_eq!(
            verdict.outcome,
            Outcome::Inconclusive,
            "{:?}",
            verdict.with(Status::Fail).collect::<Vec<_>>()
        );
        assert!(find(&verdict, "ttft.p95.128").reason.starts_with("launches differ by "));
    }
}

#[test]
fn memory_is_judged_on_a_machine_whose_timings_are_not() {
    let mut hot = noisy(5, 10, 0.008, |_| 1.3);
    for launch in &mut hot.launches {
        launch.canary_ms = Some(1.6);
        launch.memory.as_mut().unwrap().peak_bytes = Some(310_310_000);
    }
    let check = find(&judged(&hot), "memory_peak.p50");
    assert_eq!(check.status, Status::Pass, "{check:?}");
    hot.launches.iter_mut().for_each(|launch| launch.memory.as_mut().unwrap().peak_bytes = Some(400_000_000));
    let check = find(&judged(&hot), "memory_peak.p50");
    assert_eq!(
        (check.status, &*check.reason),
        (Status::Fail, "29.0 % larger, 10 % is allowed, and chance is ruled out")
    );
}

#[test]
fn a_baseline_shows_the_value_that_its_report_shows() {
    let (session, slower) = (of_other_packages(noisy(100, 8, 0.008, same)), noisy(2, 10, 0.03, |_| 1.4));
    for candidate in [&slower, &noisy(3, 10, 0.008, |_| 0.7)] {
        let verdict = judge(candidate, &[&session], &policy(), &options(InterimLook::only())).unwrap();
        for (id, metric, percentile) in [
            ("ttft.p50.128", Metric::Ttft, Percentile::P50),
            ("tps.p95.512", Metric::Tps, Percentile::P95),
            ("load.p50", Metric::Load, Percentile::P50),
        ] {
            let check = find(&verdict, id);
            let shown = |report: &Report| {
                report.figure(metric, check.seq_len).unwrap().summary.percentiles.get(percentile)
            };
            let effect = check.effect.as_ref().unwrap();
            assert_eq!((effect.baseline, effect.candidate), (shown(&session), shown(candidate)), "{id}");
        }
    }
}

#[test]
fn reasons_are_sentences_that_people_would_say() {
    let faster = find(&judged(&noisy(3, 10, 0.008, |_| 0.2)), "ttft.p50.128");
    assert!(
        faster.reason.starts_with("at least 7") && faster.reason.ends_with(" % faster"),
        "{}",
        faster.reason
    );
    let tail = |seed: u64| {
        let mut candidate = noisy(seed, 10, 0.008, same);
        // The slowest request of every launch is slower, more or less.
        for (index, launch) in candidate.launches.iter_mut().enumerate() {
            launch.requests[0].ttft_ms *= 1.02 + 0.05 * (index % 4) as f64;
        }
        let check = find(&judged(&candidate), "ttft.p95.128");
        let beyond = check.effect.as_ref().unwrap().regression_pct > 5.0;
        (check.status == Status::Pass && beyond).then_some(check.reason)
    };
    let reason = (0..20).find_map(tail).unwrap();
    assert!(
        reason.ends_with(
            " % slower in these samples, 5 % is allowed; a tail differs so much by chance, and 25 % slower is ruled out"
        ),
        "{reason}"
    );
}
