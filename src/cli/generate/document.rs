//! What `anemeter generate --json` prints.

use std::time::Duration;

use serde::Serialize;

use crate::bundle::Bundle;
use crate::generate::{Answer, Finish, GenerateError, Generator, Request, Sequence, Text, Timings};
use crate::vocabulary::{KvForm, RuntimeName};

/// An answer with all that is known of it.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    bundle: &'a str,
    runtime: RuntimeName,
    kv: KvForm,
    prompt_ids: &'a [u32],
    sequences: Vec<Generated>,
    seq_len: Lengths,
    sampling: Chance,
    timings: Times,
}

#[derive(Debug, Serialize)]
struct Generated {
    ids: Vec<u32>,
    text: Option<String>,
    finish: Finish,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_logits: Vec<Vec<Candidate>>,
}

#[derive(Debug, Serialize)]
struct Candidate {
    id: u32,
    token: Option<String>,
    logit: f32,
}

/// Sequence length or context after the first and after the last token.
#[derive(Debug, Serialize)]
struct Lengths {
    first: usize,
    last: usize,
}

#[derive(Debug, Serialize)]
struct Chance {
    temperature: f32,
    top_k: Option<usize>,
    top_p: f32,
    seed: u64,
}

#[derive(Debug, Serialize)]
struct Times {
    tokenizer_ms: f64,
    embed_ms: f64,
    prefill_ms: f64,
    sample_ms: f64,
    first_step_ms: f64,
    ttft_ms: f64,
    /// Tokens after the first by the time they took; absent if there is only one.
    tokens_per_second: Option<f64>,
    steps_ms: Vec<f64>,
}

impl<'a> Document<'a> {
    pub(super) fn new(
        bundle: &'a Bundle,
        runtime: RuntimeName,
        generator: &Generator,
        request: &'a Request,
        answer: &Answer,
    ) -> Result<Document<'a>, GenerateError> {
        let text = generator.text().map(AsRef::as_ref);
        let sequences = answer.sequences.iter().map(|sequence| generated(sequence, text));
        let sampling = &request.sampling;
        Ok(Document {
            bundle: &bundle.manifest().name,
            runtime,
            kv: generator.driver().form(),
            prompt_ids: request.prompts.first().map(|prompt| &prompt.ids[..]).unwrap_or_default(),
            sequences: sequences.collect::<Result<_, _>>()?,
            seq_len: Lengths { first: answer.lengths.0, last: answer.lengths.1 },
            sampling: Chance {
                temperature: sampling.temperature,
                top_k: sampling.top_k,
                top_p: sampling.top_p,
                seed: sampling.seed,
            },
            timings: Times::of(&answer.timings),
        })
    }

    /// One line for people.
    pub(super) fn summary(&self) -> String {
        let tokens = self.sequences.iter().map(|sequence| sequence.ids.len()).max().unwrap_or(0);
        let finish = match self.sequences.first().map(|sequence| sequence.finish) {
            Some(Finish::Stop) => "ended by the model",
            Some(Finish::Context) => "ended by the longest seq_len",
            Some(Finish::Cancelled) => "broken off",
            Some(Finish::Length) | None => "as many as asked for",
        };
        let speed = self.timings.tokens_per_second.map(|speed| format!(", {speed:.1} tokens/s"));
        format!(
            "{tokens} tokens, {finish}; {} prompt tokens, first token after {:.0} ms{}; kv {}, seq_len {}, runtime {}",
            self.prompt_ids.len(),
            self.timings.ttft_ms,
            speed.unwrap_or_default(),
            self.kv,
            self.seq_len.last,
            self.runtime
        )
    }
}

fn generated(sequence: &Sequence, text: Option<&Text>) -> Result<Generated, GenerateError> {
    let token = |id: u32| text.and_then(|text| text.tokenizer.token(id));
    let candidates = |step: &Vec<(u32, f32)>| {
        step.iter().map(|&(id, logit)| Candidate { id, token: token(id), logit }).collect()
    };
    Ok(Generated {
        ids: sequence.ids.clone(),
        text: text.map(|text| text.tokenizer.decode(&sequence.ids)).transpose()?,
        finish: sequence.finish,
        top_logits: sequence.top.iter().map(candidates).collect(),
    })
}

impl Times {
    fn of(timings: &Timings) -> Times {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let after_first: Duration = timings.steps.iter().map(|step| step.total).sum();
        let speed = timings.steps.len() as f64 / after_first.as_secs_f64();
        Times {
            tokenizer_ms: ms(timings.tokenizer),
            embed_ms: ms(timings.embed),
            prefill_ms: ms(timings.prefill),
            sample_ms: ms(timings.sample),
            first_step_ms: ms(timings.first_step),
            ttft_ms: ms(timings.tokenizer + timings.first_step),
            tokens_per_second: speed.is_finite().then_some(speed),
            steps_ms: timings.steps.iter().map(|step| ms(step.total)).collect(),
        }
    }
}
