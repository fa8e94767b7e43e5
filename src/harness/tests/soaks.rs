//! Long runs: what is injected is named, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use half::f16;

use super::fake::{FakeMachine, FakeWorkers, Script, observe, plan};
use anemeter_measure::report::{LeakVerdict, Outcome, Soak};

const STEPS: usize = 600;

fn soak(machine: &FakeMachine, script: Script) -> Soak {
    let mut workers = FakeWorkers::new(machine, script);
    let mut plan = plan(1, 1);
    plan.soak_steps = Some(STEPS);
    let (observed, ..) = observe(&plan, &mut workers);
    observed.soak.unwrap()
}

/// Predictions of 2 ms with some noise, slower by a factor after a number of predictions.
fn noisy(seed: u64, slow_after: usize, factor: f64) -> Script {
    Arc::new(move |n, _, _| {
        let noise = fastrand::Rng::with_seed(seed ^ (n as u64).wrapping_mul(0x9e37)).f64();
        let slow = if n > slow_after { factor } else { 1.0 };
        Duration::from_nanos((2e6 * slow * (1.0 + 0.05 * noise)) as u64)
    })
}

fn breathing(seed: u64) -> FakeMachine {
    FakeMachine::growing(move |bytes| {
        let mut random = fastrand::Rng::with_seed(seed ^ bytes);
        (50 << 20) + 4096 * random.u64(0..16)
    })
}

#[test]
fn clean_runs_are_clean_twenty_of_twenty_times() {
    for seed in 0..20 {
        let soak = soak(&breathing(seed), noisy(seed, usize::MAX, 1.0));
        assert_eq!((soak.steps, soak.seq_len, soak.outcome), (STEPS, 128, Outcome::Completed));
        assert_eq!(soak.memory.unwrap().verdict, LeakVerdict::Steady, "seed {seed}");
        assert!(!soak.latency.unwrap().throttled, "seed {seed}");
        assert_eq!(soak.not_finite, None);
    }
}

#[test]
fn a_leak_is_named() {
    let leaking = FakeMachine::growing(|bytes| bytes + 12 * 1024);
    let soak = soak(&leaking, noisy(1, usize::MAX, 1.0));
    let memory = soak.memory.unwrap();
    assert_eq!(memory.verdict, LeakVerdict::Leak);
    // Twelve KiB per look, and a look after each request of three steps.
    assert!((memory.bytes_per_step.per_step - 4096.0).abs() < 10.0, "{:?}", memory.bytes_per_step);
    assert!(!soak.latency.unwrap().throttled);
}

#[test]
fn throttling_is_named() {
    let soak = soak(&breathing(1), noisy(1, 400, 1.5));
    let latency = soak.latency.unwrap();
    assert!(latency.throttled && (latency.late_over_early - 1.5).abs() < 0.05, "{latency:?}");
    assert_eq!(soak.memory.unwrap().verdict, LeakVerdict::Steady);
}

#[test]
fn a_nan_stops_the_run_and_is_named() {
    let script: Script = Arc::new(|n, _, logits: &mut [f16]| {
        if n == 100 {
            logits[3] = f16::INFINITY;
        }
        Duration::from_millis(1)
    });
    let soak = soak(&breathing(1), script);
    let what = soak.not_finite.unwrap();
    assert!(what.contains("the logit of token 3 is inf"), "{what}");
    assert!(soak.steps < STEPS);
    assert_eq!(soak.outcome, Outcome::Completed);
}
