//! What each path answers.

pub(crate) mod chat;
mod collect;
pub(crate) mod completions;
pub(crate) mod health;
pub(crate) mod models;
pub(crate) mod page;
pub(crate) mod prometheus;
mod settings;
mod stream;

use std::time::{SystemTime, UNIX_EPOCH};

use anemeter_harness::generate::Finish;
use serde_json::{Value, json};

use crate::event::Done;

/// Why an answer ended, in the words of the interface.
fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length | Finish::Context => "length",
        Finish::Cancelled => "cancelled",
    }
}

/// Tokens of the answers to one request, which share their prompts.
fn usage(ended: &[Done], choices_per_prompt: usize) -> Value {
    let prompt: usize = ended.iter().step_by(choices_per_prompt.max(1)).map(|done| done.prompt_tokens).sum();
    let completion: usize = ended.iter().map(|done| done.completion_tokens).sum();
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

/// Times of one answer: no part of the interface, but beside it.
fn timings(done: &Done) -> Value {
    let millis = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let steps = done.completion_tokens.saturating_sub(1);
    let rate = (steps > 0).then(|| steps as f64 / done.times.decoding.as_secs_f64());
    json!({
        "queue_ms": millis(done.times.queue),
        "ttft_ms": done.times.first_token.map(millis),
        "total_ms": millis(done.times.total),
        "decode_tokens_per_second": rate.filter(|rate| rate.is_finite()),
    })
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A name for a response that no other response of this process has.
fn response_id(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{prefix}-{:x}-{}", now(), NEXT.fetch_add(1, Ordering::Relaxed))
}
