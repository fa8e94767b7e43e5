//! A launch: one fresh process and everything that it measured.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Metric, Place, Prediction};
use anemeter_base::hardware::Conditions;

/// One fresh process: what it loaded, ran and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Its number, from 0.
    pub index: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// The machine before it started.
    pub conditions: Conditions,
    /// Time of a fixed small computation, in milliseconds: shifts when the machine itself is slower.
    pub canary_ms: Option<f64>,
    /// What making the model ready took.
    pub load: Option<Load>,
    /// Memory of the process.
    pub memory: Option<Memory>,
    /// Energy of the whole machine per generated token, where the system tells it.
    pub energy_joules_per_token: Option<f64>,
    /// Requests that were run to warm up and are not in `requests`.
    pub warm_up_requests: usize,
    /// Measured requests in the order in which they ran.
    pub requests: Vec<Request>,
    /// Measured predictions in the order in which they ran, of the workload `predict`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predictions: Vec<Prediction>,
    /// The end of what it wrote to standard error, if it failed.
    pub stderr: Option<String>,
}

impl Launch {
    /// The values of a metric at a place, in the order in which they were measured.
    pub fn values<'a>(&'a self, metric: Metric, place: &'a Place) -> impl Iterator<Item = f64> + 'a {
        let requests = self.requests.iter().filter(|request| place.seq_len() == Some(request.seq_len));
        let predictions = self.predictions.iter().filter(|one| place.case() == Some(&*one.case));
        let of_requests = requests.flat_map(move |request| metric.of_request(request));
        of_requests.chain(predictions.filter_map(move |one| metric.of_prediction(one)))
    }

    /// Requests and predictions that were measured.
    pub fn samples(&self) -> usize {
        self.requests.len() + self.predictions.len()
    }

    /// Where something was measured: sequence lengths in order, then cases in the order of their first predictions.
    pub fn places(&self) -> Vec<Place> {
        let seq_lens: BTreeSet<usize> = self.requests.iter().map(|request| request.seq_len).collect();
        let mut places: Vec<Place> = seq_lens.into_iter().map(Place::SeqLen).collect();
        for prediction in &self.predictions {
            if !places.iter().any(|place| place.case() == Some(&*prediction.case)) {
                places.push(Place::Case(prediction.case.clone()));
            }
        }
        places
    }
}

/// How a launch ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It measured all it should.
    Completed,
    /// It did not complete.
    Failed(Failure),
}

/// Why a launch failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// It could not be started.
    NotStarted(String),
    /// It said what went wrong.
    Reported(String),
    /// It ended early, with this exit status.
    Crashed(String),
    /// It took longer than this many milliseconds and was ended.
    TimedOut(u64),
    /// It wrote something that is not a message; this is the beginning of it.
    Garbled(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::NotStarted(why) => write!(f, "could not be started: {why}"),
            Failure::Reported(what) => write!(f, "failed: {what}"),
            Failure::Crashed(status) => write!(f, "ended early: {status}"),
            Failure::TimedOut(limit) => {
                write!(f, "took longer than {:.1} s and was ended", *limit as f64 / 1e3)
            }
            Failure::Garbled(line) => write!(f, "wrote something that is not a message: {line:?}"),
        }
    }
}

/// What making a model ready took, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Reading the description and mapping the packages.
    pub open_ms: f64,
    /// Compilation, where the runtime compiles; looking for an earlier result included.
    pub compile_ms: Option<f64>,
    /// Whether an earlier result of compilation was used, where the runtime compiles.
    #[serde(default)]
    pub compiled_before: Option<bool>,
    /// Making the packages ready to run.
    pub load_ms: f64,
    /// The first prediction, beyond which shapes are planned.
    pub first_prediction_ms: Option<f64>,
}

/// Memory of a process in bytes. What the system does not tell is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Resident when the model is ready, mapped weights included.
    pub at_load_bytes: Option<u64>,
    /// The most that was ever resident.
    pub peak_bytes: Option<u64>,
    /// Memory of the machine that nobody used at the end.
    pub available_bytes: Option<u64>,
}

/// A request that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Its place in the order of its launch, warm-up included.
    pub slot: usize,
    /// Tokens that its sequence has room for: the length it ran at, or context, prompt and generated tokens together
    /// where the workload states context depths.
    pub seq_len: usize,
    /// The length it ran at, where that is not `seq_len`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    /// Sequences of one prediction.
    pub batch: usize,
    /// Tokens that the cache held before the prompt; they were taken in before the clock started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub context_tokens: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens that were generated, per sequence.
    pub generated_tokens: usize,
    /// Milliseconds from the start of the launch to the start of the request.
    pub started_ms: f64,
    /// Time to the first token.
    pub ttft_ms: f64,
    /// The tokenizer's part; absent if the prompt was given as tokens.
    pub tokenizer_ms: Option<f64>,
    /// Everything after the tokenizer.
    pub first_step_ms: f64,
    /// The part of looking token vectors up.
    pub embed_ms: f64,
    /// The part of taking the prompt in.
    pub prefill_ms: f64,
    /// The part of picking the first token.
    pub sample_ms: f64,
    /// Times from one token to the next.
    pub steps_ms: Vec<f64>,
    /// Resident memory after it.
    pub resident_bytes: Option<u64>,
    /// Memory of the process that no file backs, after it.
    pub private_bytes: Option<u64>,
}

impl Request {
    /// Tokens per second after the first; `None` if there was no second.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let total: f64 = self.steps_ms.iter().sum();
        let tokens = self.steps_ms.len() * self.batch;
        (total > 0.0).then(|| tokens as f64 * 1e3 / total)
    }

    /// Tokens of the prompt per second of prefill, looking token vectors up included.
    pub fn prefill_tokens_per_second(&self) -> Option<f64> {
        let ms = self.embed_ms + self.prefill_ms;
        (ms > 0.0).then(|| (self.prompt_tokens * self.batch) as f64 * 1e3 / ms)
    }

    /// Mean time of a token after the first; `None` if there was no second.
    pub fn ms_per_output_token(&self) -> Option<f64> {
        let total: f64 = self.steps_ms.iter().sum();
        (!self.steps_ms.is_empty()).then(|| total / self.steps_ms.len() as f64)
    }

    /// Time from the prompt to the last token.
    pub fn end_to_end_ms(&self) -> f64 {
        self.ttft_ms + self.steps_ms.iter().sum::<f64>()
    }

    /// The length of the functions that ran it.
    pub fn ran_at(&self) -> usize {
        self.length.unwrap_or(self.seq_len)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn the_first_token_does_not_count_as_decoded() {
        let request = Request { steps_ms: vec![10.0, 30.0], ..testing::request(0, 128, 1.0) };
        assert_eq!(request.tokens_per_second(), Some(50.0));
        assert_eq!(Request { batch: 2, ..request.clone() }.tokens_per_second(), Some(100.0));
        assert_eq!(Request { steps_ms: vec![], ..request }.tokens_per_second(), None);
    }

    #[test]
    fn rates_and_times_of_a_request_are_of_its_parts() {
        let request = Request {
            prompt_tokens: 100,
            ttft_ms: 30.0,
            embed_ms: 5.0,
            prefill_ms: 20.0,
            steps_ms: vec![10.0, 30.0],
            ..testing::request(0, 128, 1.0)
        };
        assert_eq!(request.prefill_tokens_per_second(), Some(4000.0));
        assert_eq!((request.ms_per_output_token(), request.end_to_end_ms()), (Some(20.0), 70.0));
        let both = Request { batch: 2, ..request.clone() };
        assert_eq!(
            (both.prefill_tokens_per_second(), both.ms_per_output_token()),
            (Some(8000.0), Some(20.0))
        );
        let single = Request { steps_ms: vec![], ..request };
        assert_eq!((single.ms_per_output_token(), single.end_to_end_ms()), (None, 30.0));
    }

    #[test]
    fn failures_read_as_sentences() {
        insta::assert_snapshot!(Failure::TimedOut(90_000), @"took longer than 90.0 s and was ended");
        insta::assert_snapshot!(Failure::Garbled("a\u{1b}[2J".into()), @r#"wrote something that is not a message: "a\u{1b}[2J""#);
    }
}
