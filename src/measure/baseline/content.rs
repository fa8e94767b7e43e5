//! Whether sessions are something that a later report can be compared with.

use super::error::Problem;
use super::key::Key;
use crate::report::{Launch, Outcome, Report, Request};

/// Launches of a session that completed.
pub(super) fn completed(session: &Report) -> usize {
    session.launches.iter().filter(|launch| launch.outcome == Outcome::Completed).count()
}

/// Refuses sessions without samples, with samples that are not numbers, or of another key.
pub(super) fn check(sessions: &[Report], key: &Key) -> Result<(), Problem> {
    if sessions.is_empty() {
        return Err(Problem::Empty("it has no session".to_owned()));
    }
    for (index, session) in sessions.iter().enumerate() {
        let name = format!("session {}", index + 1);
        if !key.takes(session) {
            let (found, expected) = (Box::new(Key::of(session)), Box::new(key.clone()));
            return Err(Problem::OtherSession { session: name, found, expected });
        }
        let launches = session.launches.iter().filter(|launch| launch.outcome == Outcome::Completed);
        let (mut samples, mut places) = (0, Vec::new());
        for launch in launches {
            samples += launch.samples();
            places.extend(launch.places());
            if let Some((what, value)) = wrong_number(launch) {
                let at = format!("{name}, launch {}", launch.index);
                return Err(Problem::NotANumber(format!("{at}: {what} is {value}")));
            }
        }
        if samples == 0 {
            return Err(Problem::Empty(format!("{name} has no samples")));
        }
        if let Some(missing) = session.workload.places().iter().find(|place| !places.contains(place)) {
            return Err(Problem::Empty(format!("{name} has no samples at {}", missing.in_words())));
        }
    }
    Ok(())
}

/// A time in a launch that cannot be one.
fn wrong_number(launch: &Launch) -> Option<(String, f64)> {
    let canary = launch.canary_ms.map(|value| ("canary_ms".to_owned(), value));
    let load = launch.load.iter().map(|load| ("load_ms".to_owned(), load.load_ms));
    let requests = launch.requests.iter().flat_map(|request| {
        times(request).into_iter().map(|(what, value)| (format!("{what} of slot {}", request.slot), value))
    });
    let predictions = launch.predictions.iter().map(|one| {
        // No prediction takes no time; a clock that says so would make any later one infinitely slower.
        let latency = Some(one.latency_ms).filter(|ms| *ms > 0.0).unwrap_or(f64::NAN);
        (format!("latency_ms of slot {}", one.slot), latency)
    });
    let zero = launch.requests.iter().filter(|request| request.ttft_ms == 0.0);
    let zero = zero.map(|request| (format!("ttft_ms of slot {}", request.slot), 0.0)).next();
    let mut all = canary.into_iter().chain(load).chain(requests).chain(predictions);
    all.find(|(_, value)| !(value.is_finite() && *value >= 0.0)).or(zero)
}

fn times(request: &Request) -> Vec<(&'static str, f64)> {
    let mut times = vec![
        ("started_ms", request.started_ms),
        ("ttft_ms", request.ttft_ms),
        ("first_step_ms", request.first_step_ms),
        ("embed_ms", request.embed_ms),
        ("prefill_ms", request.prefill_ms),
        ("sample_ms", request.sample_ms),
    ];
    times.extend(request.tokenizer_ms.map(|value| ("tokenizer_ms", value)));
    times.extend(request.steps_ms.iter().map(|&value| ("a step", value)));
    times
}
