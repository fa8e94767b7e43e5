//! Requests of the workload `generate`: prompts that fill a sequence length, and the tokens that follow.

use std::ops::ControlFlow;
use std::time::Duration;

use super::prompts::Prompts;
use super::protocol::GenerateUse;
use super::requests::{Done, First, Measured, Requests, Undone, ms};
use crate::generate::{self, Answer, GenerateError, Generator, Prompt, Sampling};
use anemeter_measure::report::Request;

/// A generator and the prompts that it is given.
pub(super) struct Generation {
    generator: Generator,
    prompts: Prompts,
    generated_tokens: usize,
}

impl Generation {
    pub(super) fn new(generator: Generator, wanted: &GenerateUse, seed: u64) -> Result<Generation, String> {
        let prompts = Prompts::open(&wanted.prompts, seed, generator.text().is_some())?;
        Ok(Generation { generator, prompts, generated_tokens: wanted.generated_tokens })
    }

    fn ask(&self, prompt: Prompt, length: Option<usize>, max_tokens: usize) -> generate::Request {
        // Every request is to take the same steps, so no token ends it.
        generate::Request {
            prompts: vec![prompt],
            max_tokens,
            sampling: Sampling::default(),
            ends: Vec::new(),
            length,
            top_logits: 0,
        }
    }

    fn generate(&mut self, request: &generate::Request) -> Result<Answer, GenerateError> {
        self.generator.generate(request, &mut |_| Ok(ControlFlow::Continue(())))
    }
}

impl Requests for Generation {
    /// One token after a prompt of one, at the shortest sequence length.
    fn first(&mut self, _: Duration) -> Result<First, String> {
        let request = self.ask(Prompt { ids: vec![0], ..Prompt::default() }, None, 1);
        let answer = self.generate(&request).map_err(|e| e.to_string())?;
        Ok(First { elapsed: answer.timings.first_step, records: Vec::new() })
    }

    /// One request that fills the sequence length.
    fn request(&mut self, slot: usize, seq_len: usize, started: Duration) -> Result<Done, Undone> {
        let room = seq_len.saturating_sub(self.generated_tokens);
        if room == 0 {
            let tokens = self.generated_tokens;
            let problem = format!("seq_len {seq_len} has no room for a prompt beside {tokens} tokens");
            return Err(Undone::Failed(problem));
        }
        let prompt = self.prompts.next(&mut self.generator, slot, room);
        let (prompt, tokenized) = prompt.map_err(Undone::Failed)?;
        let prompt_tokens = prompt.ids.len();
        let request = self.ask(prompt, Some(seq_len), self.generated_tokens);
        let answer = self.generate(&request).map_err(|error| match error {
            GenerateError::Logits { .. } => Undone::NotFinite(error.to_string()),
            _ => Undone::Failed(error.to_string()),
        })?;
        if answer.lengths != (seq_len, seq_len) {
            let problem = format!("a request for seq_len {seq_len} ran at {:?}", answer.lengths);
            return Err(Undone::Failed(problem));
        }
        Ok(Done {
            measured: Measured::Request(record(
                (slot, seq_len),
                &answer,
                started,
                (prompt_tokens, tokenized),
            )),
            steps: answer.timings.steps.iter().map(|step| step.total).collect(),
            tokens: answer.sequences.iter().map(|sequence| sequence.ids.len()).sum(),
        })
    }
}

fn record(
    (slot, seq_len): (usize, usize),
    answer: &Answer,
    started: Duration,
    (prompt_tokens, tokenized): (usize, bool),
) -> Request {
    let timings = &answer.timings;
    Request {
        slot,
        seq_len,
        batch: answer.sequences.len(),
        prompt_tokens,
        generated_tokens: timings.steps.len() + 1,
        started_ms: ms(started),
        ttft_ms: ms(timings.tokenizer + timings.first_step),
        tokenizer_ms: tokenized.then(|| ms(timings.tokenizer)),
        first_step_ms: ms(timings.first_step),
        embed_ms: ms(timings.embed),
        prefill_ms: ms(timings.prefill),
        sample_ms: ms(timings.sample),
        steps_ms: timings.steps.iter().map(|step| ms(step.total)).collect(),
        resident_bytes: None,
        private_bytes: None,
    }
}
