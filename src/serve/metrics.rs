//! What `/metrics` tells, in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::event::Done;

/// Counts and times since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    responses: Mutex<Vec<(u16, u64)>>,
    cancelled: AtomicU64,
    running: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    first_token: Histogram,
    per_token: Histogram,
    queue: Histogram,
    total: Histogram,
}

/// One more request is being worked on as long as this lives.
pub(crate) struct Running<'a>(&'a AtomicU64);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn running(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(&self.running)
    }

    /// A client left before its answer was complete.
    pub(crate) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn responded(&self, status: u16) {
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        match responses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => responses.push((status, 1)),
        }
    }

    pub(crate) fn answered(&self, done: &Done) {
        let Done { prompt_tokens, completion_tokens, times, .. } = done;
        self.prompt_tokens.fetch_add(*prompt_tokens as u64, Ordering::Relaxed);
        self.completion_tokens.fetch_add(*completion_tokens as u64, Ordering::Relaxed);
        self.queue.observe(times.queue);
        self.total.observe(times.total);
        if let Some(first) = times.first_token {
            self.first_token.observe(first);
        }
        if *completion_tokens > 1 {
            self.per_token.observe(times.decoding / (*completion_tokens as u32 - 1));
        }
    }

    /// The page.
    pub(crate) fn text(&self, waiting: usize) -> String {
        let mut text = String::new();
        let mut single = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(
                text,
                "# HELP anemeter_{name} {help}\n# TYPE anemeter_{name} {kind}\nanemeter_{name} {value}"
            );
        };
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        single("requests_waiting", "gauge", "Requests that wait for a session.", waiting as u64);
        single("requests_running", "gauge", "Requests that a session works on.", read(&self.running));
        single("requests_cancelled_total", "counter", "Requests whose client left.", read(&self.cancelled));
        single("prompt_tokens_total", "counter", "Tokens of prompts.", read(&self.prompt_tokens));
        single(
            "completion_tokens_total",
            "counter",
            "Tokens that were generated.",
            read(&self.completion_tokens),
        );
        text +=
            "# HELP anemeter_responses_total Responses by status.\n# TYPE anemeter_responses_total counter\n";
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        responses.sort_unstable();
        for (status, count) in responses {
            let _ = writeln!(text, "anemeter_responses_total{{status=\"{status}\"}} {count}");
        }
        for (name, help, histogram) in [
            (
                "time_to_first_token_seconds",
                "From a request's arrival to its first token.",
                &self.first_token,
            ),
            (
                "time_per_output_token_seconds",
                "Mean time of a token after the first, per request.",
                &self.per_token,
            ),
            ("queue_seconds", "From a request's arrival to its beginning.", &self.queue),
            ("request_seconds", "From a request's arrival to its end.", &self.total),
        ] {
            histogram.write(name, help, &mut text);
        }
        text
    }
}

/// Upper bounds of the buckets, in seconds: from a millisecond to two minutes in steps of about two.
const BOUNDS: [f64; 17] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0];

/// Durations counted in buckets.
#[derive(Debug, Default)]
struct Histogram {
    /// The last one has what is beyond all bounds.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BOUNDS.iter().position(|&bound| seconds <= bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn write(&self, name: &str, help: &str, text: &mut String) {
        let _ = writeln!(text, "# HELP anemeter_{name} {help}\n# TYPE anemeter_{name} histogram");
        let mut total = 0;
        let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            let _ = writeln!(text, "anemeter_{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(text, "anemeter_{name}_sum {sum}\nanemeter_{name}_count {total}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::default();
        for millis in [1, 3, 3, 200_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut text = String::new();
        histogram.write("x", "y", &mut text);
        for line in [
            "x_bucket{le=\"0.001\"} 1",
            "x_bucket{le=\"0.005\"} 3",
            "x_bucket{le=\"120\"} 3",
            "x_bucket{le=\"+Inf\"} 4",
            "x_sum 200.007",
            "x_count 4",
        ] {
            assert!(text.contains(&format!("anemeter_{line}\n")), "{line}: {text}");
        }
    }
}
