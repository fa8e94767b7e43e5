//! PairedComparison comparisons with workers that take the time they are told to.

use std::rc::Rc;

use super::*;
use crate::evaluate::testing::{Workers, bundle, config};
use crate::generate::ManualClock;
use crate::hardware::System;
use crate::vocabulary::RuntimeName;

/// Compares two bundles; gives the arms that were launched, too.
fn contest(
    seq_lens: [&[usize]; 2],
    (factor, noise): (f64, f64),
    budget_s: u64,
) -> (Result<PairedComparison, CompareError>, String, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let bundles = [("a", seq_lens[0]), ("b", seq_lens[1])]
        .map(|(name, seq_lens)| bundle(&folder.path().join(name), seq_lens, 1));
    let rules = GateRules::read(None, None).unwrap();
    let request = BenchRequest {
        config: config(),
        runtime: Some(RuntimeName::Cpu),
        probe_kv: false,
        soak: None,
        slow_down_pct: None,
        profiles: &rules.profiles,
    };
    let (clock, launched) = (ManualClock::default(), Rc::default());
    let random = fastrand::Rng::with_seed(11);
    let mut workers = Workers { clock: clock.clone(), random, factor, noise, launched: Rc::clone(&launched) };
    let mut events = Vec::new();
    let mut env = BenchEnv { launcher: &mut workers, clock: &clock, source: &System, sleep: &mut |_| () };
    let terms = (&rules, Duration::from_secs(budget_s));
    let compared = compare_in(bundles.each_ref(), &request, terms, &mut env, &mut |event| events.push(event));
    let launched = launched.borrow().clone();
    (compared, launched, events)
}

const SAME: [&[usize]; 2] = [&[64, 128], &[64, 128]];

fn letters(order: &[Arm]) -> String {
    order.iter().map(|arm| if *arm == Arm::Baseline { 'A' } else { 'B' }).collect()
}

#[test]
fn equal_bundles_pass_at_the_early_look_in_the_recorded_order() {
    let (paired, launched, events) = contest(SAME, (1.0, 0.005), 100_000);
    let paired = paired.unwrap();
    assert_eq!(paired.verdict.outcome, Outcome::Pass, "{:#?}", paired.verdict);
    assert_eq!(paired.looks, [LookOutcome { launches: 6, outcome: Outcome::Pass }]);
    assert_eq!(letters(&paired.order), launched);
    assert_eq!(paired.order, gate::draw_order(3, paired.seed));
    assert_eq!((paired.baseline.launches.len(), paired.candidate.launches.len()), (6, 6));
    let begun = events.iter().filter(|event| matches!(event, Event::LaunchBegins { of: 12, .. })).count();
    assert_eq!(begun, 12);
}

#[test]
fn a_slower_bundle_fails_at_the_full_look() {
    let (paired, launched, _) = contest(SAME, (1.12, 0.005), 100_000);
    let paired = paired.unwrap();
    assert_eq!(paired.verdict.outcome, Outcome::Fail);
    assert_eq!(paired.looks.iter().map(|look| look.launches).collect::<Vec<_>>(), [6, 10]);
    assert_eq!(launched.len(), 20);
    let failed: Vec<String> = paired.verdict.with(Status::Fail).map(gate::Check::id).collect();
    assert!(failed.contains(&"ttft.p50.64".to_owned()), "{failed:?}");
}

#[test]
fn noise_is_inconclusive_when_the_blocks_or_the_time_are_used_up() {
    let (paired, launched, _) = contest(SAME, (1.08, 0.3), 100_000);
    let paired = paired.unwrap();
    assert_eq!(paired.verdict.outcome, Outcome::Inconclusive);
    assert!((20..=40).contains(&launched.len()), "{launched}");

    let (paired, launched, events) = contest(SAME, (1.08, 0.3), 150);
    let paired = paired.unwrap();
    assert_eq!((paired.verdict.outcome, launched.len()), (Outcome::Inconclusive, 16));
    assert_eq!(paired.looks, [LookOutcome { launches: 6, outcome: Outcome::Inconclusive }]);
    assert!(events.contains(&Event::BudgetSpent { launches: 16 }));
    assert_eq!(letters(&paired.order), launched);
}

#[test]
fn bundles_that_do_other_work_are_refused_before_anything_runs() {
    let (refused, launched, _) = contest([&[64, 128], &[64]], (1.0, 0.0), 100);
    let Err(CompareError::Gate(error)) = refused else { panic!("other sequence lengths were compared") };
    assert!(
        error.to_string().contains("list of sequence lengths is `64`, the baseline's is `64,128`"),
        "{error}"
    );
    assert_eq!(launched, "");
}
