//! Paired comparisons with workers that take the time they are told to.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::generate::ManualClock;
use crate::hardware::Profiles;
use crate::harness::{
    BenchConfig, Child, Ended, Incoming, Job, Message, PromptConfig, PromptSource, null_manifest,
};
use crate::package::atomic::write_file;
use crate::report::{Load, Memory, Request, testing};

/// Workers of two bundles, in folders `a` and `b`.
struct Workers {
    clock: ManualClock,
    random: fastrand::Rng,
    /// How much longer requests of `b` take.
    factor: f64,
    /// How much launches differ.
    noise: f64,
    launched: Rc<RefCell<String>>,
}

impl Workers {
    fn requests(&mut self, job: &Job) -> Vec<Message> {
        let Job::Measure { model, slots } = job else { return Vec::new() };
        let second = model.bundle.ends_with("b");
        self.launched.borrow_mut().push(if second { 'B' } else { 'A' });
        self.clock.advance(Duration::from_secs(10));
        let around_one = |random: &mut fastrand::Rng, size: f64| 1.0 + size * (2.0 * random.f64() - 1.0);
        let launch = around_one(&mut self.random, self.noise) * if second { self.factor } else { 1.0 };
        let load = Load {
            open_ms: 1.0,
            compile_ms: None,
            compiled_before: None,
            load_ms: 20.0,
            first_prediction_ms: None,
        };
        let start = [
            Message::Canary { ms: 1.5 },
            Message::Loaded { load, resident_bytes: Some(1 << 20), weight_bytes_per_token: Some(1 << 20) },
        ];
        let requests = slots.iter().map(|slot| {
            let scale = launch * around_one(&mut self.random, 0.005) * slot.shape as f64 / 64.0;
            let request = Request { generated_tokens: 5, ..testing::request(slot.slot, slot.shape, scale) };
            if slot.warm_up { Message::WarmedUp } else { Message::Request(request) }
        });
        start.into_iter().chain(requests).collect()
    }
}

impl Launcher for Workers {
    fn launch(&mut self, job: &Job) -> Result<Box<dyn Child>, String> {
        let memory =
            Memory { at_load_bytes: Some(1 << 20), peak_bytes: Some(2 << 20), available_bytes: None };
        let end = Message::Finished { memory: Some(memory), energy_joules_per_token: None };
        let messages = self.requests(job).into_iter().chain([end]);
        Ok(Box::new(Lines(messages.map(|message| serde_json::to_vec(&message).unwrap()).collect())))
    }
}

struct Lines(VecDeque<Vec<u8>>);

impl Child for Lines {
    fn next(&mut self, _: Duration) -> Incoming {
        self.0.pop_front().map_or(Incoming::Closed, Incoming::Line)
    }

    fn end(&mut self) -> Ended {
        Ended { status: "exit status: 0".to_owned(), success: true, stderr: String::new() }
    }
}

fn bundle(folder: &Path, shapes: &[usize], batch: usize) -> Bundle {
    std::fs::create_dir_all(folder).unwrap();
    let manifest = null_manifest(shapes, batch);
    write_file(&folder.join("null.mlpackage"), b"").unwrap();
    write_file(&folder.join("export.json"), &serde_json::to_vec(&manifest).unwrap()).unwrap();
    Bundle::open(folder).unwrap()
}

/// Compares two bundles; gives the arms that were launched, too.
fn contest(
    shapes: [&[usize]; 2],
    (factor, noise): (f64, f64),
    budget_s: u64,
) -> (Result<Paired, CompareError>, String, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let bundles = [("a", shapes[0]), ("b", shapes[1])]
        .map(|(name, shapes)| bundle(&folder.path().join(name), shapes, 1));
    let mut config = BenchConfig::built_in().unwrap();
    (config.requests_per_shape, config.warm_up_rounds) = (5, 1);
    (config.generated_tokens, config.cool_down_s) = (5, 0.0);
    config.prompts = PromptConfig { source: PromptSource::Tokens, file: None };
    let (profiles, gates) = (Profiles::built_in().unwrap(), GatesFile::built_in().unwrap());
    let wishes = Wishes {
        config,
        runtime: "cpu",
        probe_kv: false,
        soak: None,
        slow_down_pct: None,
        profiles: &profiles,
    };
    let today = Date::parse("2026-01-31").unwrap();
    let terms = Terms { gates: &gates, today, budget: Duration::from_secs(budget_s) };
    let (clock, launched) = (ManualClock::default(), Rc::default());
    let random = fastrand::Rng::with_seed(11);
    let mut workers = Workers { clock: clock.clone(), random, factor, noise, launched: Rc::clone(&launched) };
    let mut events = Vec::new();
    let mut around =
        Surroundings { launcher: &mut workers, clock: &clock, source: &System, rest: &mut |_| () };
    let compared =
        compare_in(bundles.each_ref(), &wishes, &terms, &mut around, &mut |event| events.push(event));
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
    assert_eq!(paired.looks, [Taken { launches: 6, outcome: Outcome::Pass }]);
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
    assert_eq!(paired.looks, [Taken { launches: 6, outcome: Outcome::Inconclusive }]);
    assert!(events.contains(&Event::BudgetSpent { launches: 16 }));
    assert_eq!(letters(&paired.order), launched);
}

#[test]
fn bundles_that_do_other_work_are_refused_before_anything_runs() {
    let (refused, launched, _) = contest([&[64, 128], &[64]], (1.0, 0.0), 100);
    let Err(CompareError::Gate(error)) = refused else { panic!("other shapes were compared") };
    assert!(error.to_string().contains("list of shapes is `64`, the baseline's is `64,128`"), "{error}");
    assert_eq!(launched, "");
}
