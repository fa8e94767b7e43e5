//! Choosing the form of the KV cache by trial.

use std::sync::Arc;
use std::time::Duration;

use half::f16;

use super::super::choose_form;
use super::super::plan::{Plan, PlannedWork};
use super::super::protocol::{GenerateUse, Job, Work};
use super::super::run::BenchEnv;
use super::fake::{FakeMachine, FakeWorkers, Mishap, Script, plan, steady};
use anemeter_base::vocabulary::KvForm;

const BOTH: [KvForm; 2] = [KvForm::Io, KvForm::State];

fn fast() -> Script {
    steady(Duration::from_millis(2), Duration::from_millis(1))
}

/// The form that is chosen and why.
fn chosen(forms: &[KvForm], workers: &mut FakeWorkers<'_>) -> (KvForm, String) {
    let (clock, machine) = (workers.clock.clone(), workers.machine);
    let mut env = BenchEnv { launcher: workers, clock: &clock, source: machine, sleep: &mut |_| {} };
    let plan_of = &mut |form: KvForm| -> Result<Plan, String> {
        match form {
            KvForm::None => Err("no".to_owned()),
            kv => {
                let mut plan = plan(1, 1);
                if let PlannedWork::Generate(work) = &mut plan.work {
                    work.kv = kv;
                }
                Ok(plan)
            }
        }
    };
    let (form, choice) = choose_form(forms, plan_of, &mut env, 0.8);
    assert_eq!(choice.form, form);
    (form, choice.reason)
}

#[test]
fn a_form_that_runs_where_it_should_is_taken() {
    let machine = FakeMachine::growing(|bytes| bytes);
    let mut workers = FakeWorkers::new(&machine, fast());
    workers.residency = Some(0.9);
    let (form, reason) = chosen(&BOTH, &mut workers);
    assert_eq!(form, KvForm::State);
    insta::assert_snapshot!(reason, @"`state` ran 501 steps with 90.0 % planned on the Neural Engine");
    let jobs = workers.jobs.borrow();
    let Job::Try { model, steps, .. } = &jobs[0] else { panic!("another job") };
    let Work::Generate(GenerateUse { kv, .. }) = &model.work else { panic!("a form is that of a generator") };
    assert_eq!((jobs.len(), *kv, *steps), (1, KvForm::State, 500));
}

#[test]
fn a_runtime_without_plans_is_judged_by_its_steps() {
    let machine = FakeMachine::growing(|bytes| bytes);
    let (form, reason) = chosen(&BOTH, &mut FakeWorkers::new(&machine, fast()));
    assert_eq!(form, KvForm::State);
    insta::assert_snapshot!(reason, @"`state` ran 501 steps");
}

#[test]
fn what_is_off_the_neural_engine_falls_back() {
    let machine = FakeMachine::growing(|bytes| bytes);
    let mut workers = FakeWorkers::new(&machine, fast());
    workers.residency = Some(0.25);
    let (form, reason) = chosen(&BOTH, &mut workers);
    assert_eq!(form, KvForm::Io);
    insta::assert_snapshot!(reason, @"with `state` 25.0 % is planned on the Neural Engine, 80.0 % is the least");
    let (form, reason) = chosen(&[KvForm::State], &mut workers);
    assert_eq!(form, KvForm::State);
    assert!(reason.ends_with("; the bundle has no other form"), "{reason}");
}

#[test]
fn what_dies_or_breaks_on_the_way_falls_back() {
    let machine = FakeMachine::growing(|bytes| bytes);
    let mut killed = FakeWorkers::new(&machine, fast());
    killed.mishaps = vec![(0, Mishap::Crash(1))];
    let (form, reason) = chosen(&BOTH, &mut killed);
    assert_eq!(form, KvForm::Io);
    insta::assert_snapshot!(reason, @"a trial of `state` ended early: signal: 9 (SIGKILL)");

    let breaks = Arc::new(|number: usize, _: &str, logits: &mut [f16]| {
        if number > 150 {
            logits.fill(f16::NAN);
        }
        Duration::from_millis(1)
    });
    let (form, reason) = chosen(&BOTH, &mut FakeWorkers::new(&machine, breaks));
    assert_eq!(form, KvForm::Io);
    assert!(reason.starts_with("a trial of `state` failed: after 111 steps: "), "{reason}");

    let mut hung = FakeWorkers::new(&machine, fast());
    hung.mishaps = vec![(0, Mishap::Hang(1))];
    let (form, reason) = chosen(&BOTH, &mut hung);
    assert_eq!(form, KvForm::Io);
    insta::assert_snapshot!(reason, @"a trial of `state` took longer than 200.0 s and was ended");
}

#[test]
fn a_bundle_without_the_form_is_not_tried() {
    let machine = FakeMachine::growing(|bytes| bytes);
    let mut workers = FakeWorkers::new(&machine, fast());
    let (form, reason) = chosen(&[KvForm::Io], &mut workers);
    assert_eq!((form, reason.as_str()), (KvForm::Io, "the bundle has no form `state`"));
    assert!(workers.jobs.borrow().is_empty());
}
