//! Workers that crash, hang or talk rubbish spoil their own launch and nothing else.

use std::sync::Arc;
use std::time::Duration;

use super::super::Event;
use super::fake::{FakeMachine, FakeWorkers, Mishap, observe, plan, steady};
use anemeter_measure::report::{Failure, Launch, Metric, Outcome, figures};
use half::f16;

/// Three launches of which the second goes wrong.
fn with(mishap: Mishap) -> (Vec<Launch>, Vec<Event>) {
    let machine = FakeMachine::growing(|bytes| bytes);
    let mut workers = FakeWorkers::new(&machine, steady(Duration::from_millis(8), Duration::from_millis(2)));
    workers.mishaps = vec![(1, mishap)];
    let (observed, events, _) = observe(&plan(3, 2), &mut workers);
    (observed.launches, events)
}

fn failure(mishap: Mishap) -> (Failure, Option<String>, usize) {
    let (mut launches, _) = with(mishap);
    assert_eq!(launches.len(), 3);
    assert_eq!((&launches[0].outcome, &launches[2].outcome), (&Outcome::Completed, &Outcome::Completed));
    let ttft = figures(&launches);
    let ttft = ttft.iter().find(|figure| figure.metric == Metric::Ttft).unwrap();
    assert_eq!((ttft.launches, ttft.summary.count), (2, 4), "only good launches count");
    let launch = launches.remove(1);
    let Outcome::Failed(failure) = launch.outcome else { panic!("it should have failed") };
    (failure, launch.stderr, launch.requests.len())
}

const STDERR: Option<&str> = Some("thread panicked\n");

#[test]
fn a_crash_is_recorded_with_status_and_stderr_and_what_came_before() {
    let (failure, stderr, requests) = failure(Mishap::Crash(6));
    assert_eq!(failure, Failure::Crashed("signal: 9 (SIGKILL)".to_owned()));
    assert_eq!((stderr.as_deref(), requests), (STDERR, 2));
}

#[test]
fn a_hang_is_ended_at_its_limit() {
    let (failure, stderr, requests) = failure(Mishap::Hang(5));
    assert_eq!((failure, stderr.as_deref(), requests), (Failure::TimedOut(100_000), STDERR, 1));
}

#[test]
fn endless_talk_is_ended_at_the_limit_too() {
    let (failure, ..) = failure(Mishap::Babble);
    assert_eq!(failure, Failure::TimedOut(100_000));
}

#[test]
fn rubbish_is_kept_in_part() {
    for rubbish in [b"hello".to_vec(), b"{\"request\": 1}".to_vec(), vec![0xff; 10_000], Vec::new()] {
        let (failure, stderr, _) = failure(Mishap::Say(4, rubbish.clone()));
        let Failure::Garbled(shown) = failure else { panic!("{failure}") };
        assert!(shown.chars().count() <= 200);
        assert!(String::from_utf8_lossy(&rubbish).starts_with(&shown));
        assert_eq!(stderr.as_deref(), STDERR);
    }
}

#[test]
fn talk_after_the_end_is_rubbish() {
    let late = serde_json::to_vec(&super::super::Message::WarmedUp).unwrap();
    let (failure, ..) = failure(Mishap::Say(9, late));
    assert!(matches!(failure, Failure::Garbled(_)), "{failure}");
}

#[test]
fn what_a_worker_reports_is_told() {
    let message = serde_json::to_vec(&super::super::Message::Failed("no such file".to_owned())).unwrap();
    let (failure, ..) = failure(Mishap::Say(1, message));
    assert_eq!(failure, Failure::Reported("no such file".to_owned()));
}

#[test]
fn a_bad_status_after_all_was_said_is_a_crash() {
    let (failure, ..) = failure(Mishap::BadStatus);
    assert_eq!(failure, Failure::Crashed("exit status: 101".to_owned()));
}

#[test]
fn a_worker_that_cannot_be_started_is_a_failed_launch() {
    let (failure, stderr, _) = failure(Mishap::NotStarted);
    assert_eq!((failure, stderr), (Failure::NotStarted("no more processes".to_owned()), None));
}

#[test]
fn an_end_without_all_requests_is_no_success() {
    let finished = super::super::Message::Finished { memory: None, energy_joules_per_token: None };
    let (launches, events) = with(Mishap::Say(5, serde_json::to_vec(&finished).unwrap()));
    assert!(matches!(launches[1].outcome, Outcome::Failed(_)));
    let ended = events.iter().filter(|event| matches!(event, Event::LaunchEnded { .. })).count();
    assert_eq!(ended, 3);
}

#[test]
fn a_nan_ends_a_launch_with_its_place() {
    let machine = FakeMachine::growing(|bytes| bytes);
    let script = |n: usize, _: &str, logits: &mut [f16]| {
        if n == 6 {
            logits[7] = f16::NAN;
        }
        Duration::from_millis(1)
    };
    let mut workers = FakeWorkers::new(&machine, Arc::new(script));
    let (observed, ..) = observe(&plan(1, 1), &mut workers);
    let Outcome::Failed(Failure::Reported(why)) = &observed.launches[0].outcome else { panic!("no failure") };
    assert!(why.contains("the logit of token 7 is NaN"), "{why}");
}
