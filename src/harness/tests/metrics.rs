//! Every metric equals the value computed by hand, to the nanosecond.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::super::plan::{Plan, PlannedWork};
use super::super::schedule::schedule;
use super::super::{Context, assemble, header};
use super::fake::{FakeMachine, FakeWorkers, manifest, observe, plan, steady};
use anemeter_base::hardware::{Conditions, Machine, Profiles, match_profile};
use anemeter_base::vocabulary::{ComputeUnits, Device, RuntimeName};
use anemeter_measure::report::{Metric, OffAneOperation, Outcome, Report, figures};

fn nanoseconds(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

#[test]
fn workloads_have_the_same_digest_only_if_every_launch_does_the_same() {
    let digest = |change: fn(&mut Plan)| {
        let mut plan = plan(2, 10);
        change(&mut plan);
        plan.workload_digest()
    };
    let same = digest(|_| ());
    assert_eq!(same, digest(|plan| plan.config.launches = 9));
    let others = [
        digest(|plan| plan.config.requests_per_seq_len += 1),
        digest(|plan| plan.config.generated_tokens += 1),
        digest(|plan| {
            if let PlannedWork::Generate(work) = &mut plan.work {
                work.seq_lens.truncate(1);
            }
        }),
    ];
    assert!(others.iter().all(|other| *other != same), "{same} {others:?}");
}

#[test]
fn times_of_a_request_are_those_of_its_predictions() {
    let machine = FakeMachine::growing(|bytes| bytes);
    // Prediction n takes 1,000,003 * (n + 1) ns; each request is one prefill and three decodes.
    let took = |n: usize| Duration::from_nanos(1_000_003 * (n as u64 + 1));
    let mut workers = FakeWorkers::new(&machine, Arc::new(move |n, _, _| took(n)));
    let plan = plan(2, 2);
    let (observed, ..) = observe(&plan, &mut workers);
    for launch in &observed.launches {
        assert_eq!(launch.outcome, Outcome::Completed);
        let first = launch.load.as_ref().unwrap().first_prediction_ms.unwrap();
        assert_eq!(nanoseconds(first), 1_000_003);
        for request in &launch.requests {
            // The first prediction of all came before slot 0.
            let n = 1 + 4 * request.slot;
            let expected: Vec<u64> = (n..n + 4).map(|n| took(n).as_nanos() as u64).collect();
            assert_eq!(nanoseconds(request.ttft_ms), expected[0]);
            assert_eq!(nanoseconds(request.first_step_ms), expected[0]);
            assert_eq!(nanoseconds(request.prefill_ms), expected[0]);
            assert_eq!((request.embed_ms, request.sample_ms, request.tokenizer_ms), (0.0, 0.0, None));
            let steps: Vec<u64> = request.steps_ms.iter().map(|ms| nanoseconds(*ms)).collect();
            assert_eq!(steps, expected[1..]);
            let seconds = expected[1..].iter().sum::<u64>() as f64 / 1e9;
            assert!((request.tokens_per_second().unwrap() - 3.0 / seconds).abs() < 1e-9);
            assert_eq!((request.generated_tokens, request.prompt_tokens), (4, request.seq_len - 4));
            // Opening took 1.5 ms, then all predictions before.
            let before: u64 = (0..n).map(|n| took(n).as_nanos() as u64).sum();
            assert_eq!(nanoseconds(request.started_ms), 1_500_000 + before);
            assert_eq!(request.private_bytes, Some(50 << 20));
        }
    }
}

#[test]
fn launches_follow_their_schedules() {
    let machine = FakeMachine::growing(|bytes| bytes);
    let mut workers = FakeWorkers::new(&machine, steady(Duration::from_millis(8), Duration::from_millis(2)));
    let plan = plan(3, 4);
    let (observed, events, rested) = observe(&plan, &mut workers);
    assert_eq!((observed.launches.len(), rested), (3, Duration::ZERO));
    for (index, launch) in observed.launches.iter().enumerate() {
        let expected = schedule(&[64, 128], 1, 4, plan.config.seed, index);
        let measured: Vec<(usize, usize)> =
            expected.iter().filter(|slot| !slot.warm_up).map(|slot| (slot.slot, slot.seq_len)).collect();
        let found: Vec<(usize, usize)> = launch.requests.iter().map(|r| (r.slot, r.seq_len)).collect();
        assert_eq!((launch.index, found), (index, measured));
        assert_eq!(launch.warm_up_requests, 2);
        assert_eq!(launch.conditions.load_average, Some(0.25));
    }
    // Each launch begins, makes ten requests and ends.
    assert_eq!(events.len(), 3 * (1 + 10 + 1));
}

#[test]
fn rest_and_budget_are_kept() {
    let machine = FakeMachine::growing(|bytes| bytes);
    let mut workers = FakeWorkers::new(&machine, steady(Duration::from_secs(1), Duration::from_secs(1)));
    let mut plan = plan(5, 1);
    plan.config.cool_down_s = 2.5;
    // A launch takes 1 + 4 * 4 seconds and a little: the third begins after 34 seconds.
    plan.config.budget_s = Some(40.0);
    let (observed, events, rested) = observe(&plan, &mut workers);
    assert_eq!(observed.launches.len(), 3);
    assert_eq!(rested, Duration::from_secs_f64(7.5));
    assert!(events.contains(&super::super::Event::BudgetSpent { launches: 3 }));
}

fn report() -> Report {
    report_of(&plan(2, 10), None)
}

fn report_of(plan: &Plan, residency: Option<f64>) -> Report {
    let machine = FakeMachine::growing(|bytes| bytes);
    let mut workers = FakeWorkers::new(&machine, steady(Duration::from_millis(8), Duration::from_millis(2)));
    workers.residency = residency;
    let (observed, ..) = observe(plan, &mut workers);
    let profiles = Profiles::built_in().unwrap();
    let this = Machine::detect(&machine);
    let profile = match_profile(&profiles, &this);
    let context = Context {
        plan,
        manifest: &manifest(),
        machine: this,
        profile: &profile,
        header: header(&profile, SystemTime::UNIX_EPOCH, &machine),
        at_start: Conditions::default(),
        at_end: Conditions::default(),
        predicted_residency: Vec::new(),
        verification: None,
        quality: None,
        kv_choice: None,
    };
    assemble(context, observed)
}

#[test]
fn residency_is_planned_weighted_and_verified_in_a_process_of_its_own() {
    let plan = Plan { runtime: RuntimeName::CoreMl, units: ComputeUnits::CpuAne, ..plan(2, 10) };
    let report = report_of(&plan, Some(0.75));
    let residency = report.residency.unwrap();
    assert_eq!((residency.share, residency.verified), (0.75, true));
    let softmax = OffAneOperation {
        name: "s".to_owned(),
        kind: "softmax".to_owned(),
        device: Device::Cpu,
        eligible: false,
        reasons: Vec::new(),
    };
    assert_eq!(residency.functions[1].not_on_ane, [softmax]);
    assert_eq!((report.runtime.compute_units, report.runtime.threads), (ComputeUnits::CpuAne, None));
    assert_eq!(report.runtime.remarks, ["a remark"]);
    let regimes = report.load_regimes.unwrap();
    assert_eq!((regimes.first_ms, regimes.cached_ms, regimes.in_process_ms), (None, Some(1.25), Some(1.25)));
}

#[test]
fn a_plan_that_fails_leaves_a_note() {
    let plan = Plan { runtime: RuntimeName::CoreMl, units: ComputeUnits::CpuAne, ..plan(1, 2) };
    let report = report_of(&plan, Some(f64::NAN));
    assert_eq!(report.residency, None);
    insta::assert_snapshot!(report.residency_note, @"where operations ran is not known: asking failed: no plan");
}

#[test]
fn the_report_holds_exact_figures() {
    let report = report();
    assert_eq!(report.header.created, "1970-01-01T00:00:00Z");
    for seq_len in [64, 128] {
        let ttft = report.figure(Metric::Ttft, Some(seq_len)).unwrap();
        assert_eq!((ttft.summary.count, ttft.launches), (20, 2));
        assert_eq!((ttft.summary.percentiles.p50, ttft.summary.percentiles.p95), (Some(8.0), Some(8.0)));
        assert_eq!(ttft.summary.percentiles.p99, None);
        let tps = report.figure(Metric::Tps, Some(seq_len)).unwrap();
        assert_eq!(tps.summary.percentiles.p50, Some(500.0));
        assert_eq!(report.figure(Metric::InterToken, Some(seq_len)).unwrap().summary.count, 60);
    }
    assert_eq!((report.mix[0].mix.value, report.mix[0].mix.covered), (8.0, 1.0));
    assert_eq!(report.figure(Metric::Load, None).unwrap().summary.mean, 1.0);
    assert_eq!(report.residency, None);
    assert_eq!(report.residency_note, "the cpu runtime does not use the Neural Engine");
    assert!(report.figure(Metric::Tokenizer, Some(64)).is_none(), "no tokenizer, no figure");
    assert!(figures(&report.launches) == report.figures);
}

#[test]
fn a_report_without_a_probe_claims_no_bandwidth() {
    let report = report();
    assert_eq!((report.bandwidth, report.overhead_us_per_step), (None, None));
    assert!(report.speed_limits.is_empty());
}
