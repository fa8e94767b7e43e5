//! Requests of the workload `generate`: prompts that fill a sequence length or follow a context, and the tokens after them.

use std::ops::ControlFlow;
use std::time::Duration;

use super::depth::{AtDepth, DepthUse};
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
    depths: Option<DepthUse>,
}

/// What a request is given.
struct Asked {
    /// What it is named by.
    seq_len: usize,
    /// The length of the functions that run it.
    length: usize,
    /// Tokens that are in the cache before the clock starts.
    context: Vec<u32>,
    prompt: Prompt,
    /// Whether the tokenizer made the prompt.
    tokenized: bool,
}

impl Generation {
    pub(super) fn new(generator: Generator, wanted: &GenerateUse, seed: u64) -> Result<Generation, String> {
        // A prompt of a stated size is not text that was cut to it.
        let has_text = generator.text().is_some() && wanted.depths.is_none();
        let prompts = Prompts::open(&wanted.prompts, seed, has_text)?;
        let GenerateUse { generated_tokens, depths, .. } = wanted;
        Ok(Generation { generator, prompts, generated_tokens: *generated_tokens, depths: depths.clone() })
    }

    /// The prompt of a request, and what comes before it.
    fn next(&mut self, slot: usize, seq_len: usize) -> Result<Asked, String> {
        let Some(depths) = &self.depths else {
            let tokens = self.generated_tokens;
            let room = seq_len.checked_sub(tokens).filter(|&room| room > 0);
            let room = room.ok_or_else(|| {
                format!("seq_len {seq_len} has no room for a prompt beside {tokens} tokens")
            })?;
            let (prompt, tokenized) = self.prompts.next(&mut self.generator, slot, room)?;
            return Ok(Asked { seq_len, length: seq_len, context: Vec::new(), prompt, tokenized });
        };
        let at = depths.of(seq_len).ok_or_else(|| format!("no depth has requests of {seq_len} tokens"))?;
        let AtDepth { depth, length, .. } = at;
        let tokens = depth + depths.prompt_tokens;
        let (mut prompt, tokenized) = self.prompts.next(&mut self.generator, slot, tokens)?;
        // Where a prompt cannot be added to a cache, its context is computed with it.
        let kept = if self.generator.driver().adds_prompts() { depth } else { 0 };
        let context = prompt.ids.drain(..kept.min(prompt.ids.len())).collect();
        Ok(Asked { seq_len, length, context, prompt, tokenized })
    }

    /// Fills the cache before the clock starts.
    fn take_in(&mut self, asked: &Asked) -> Result<(), GenerateError> {
        if asked.context.is_empty() {
            return Ok(());
        }
        let driver = self.generator.driver_mut();
        let context = vec![&asked.context[..]; driver.batch()];
        driver.prefill(&context, Some(asked.length))
    }

    fn ask(&self, prompt: Prompt, length: Option<usize>, max_tokens: usize) -> generate::Request {
        // Every request is to take the same steps, so no token ends it.
        generate::Request {
            prompts: vec![prompt],
            max_tokens,
            sampling: Sampling::default(),
            ends: Vec::new(),
            length,
            continues: false,
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

    /// One request that fills a sequence length, or follows a context.
    fn request(&mut self, slot: usize, seq_len: usize, started: Duration) -> Result<Done, Undone> {
        let undone = |error: GenerateError| match error {
            GenerateError::Logits { .. } => Undone::NotFinite(error.to_string()),
            _ => Undone::Failed(error.to_string()),
        };
        let mut asked = self.next(slot, seq_len).map_err(Undone::Failed)?;
        self.take_in(&asked).map_err(undone)?;
        let (prompt_tokens, length) = (asked.prompt.ids.len(), asked.length);
        let prompt = std::mem::take(&mut asked.prompt);
        let request = generate::Request {
            continues: !asked.context.is_empty(),
            ..self.ask(prompt, Some(length), self.generated_tokens)
        };
        let answer = self.generate(&request).map_err(undone)?;
        if answer.lengths != (length, length) {
            let problem = format!("a request for length {length} ran at {:?}", answer.lengths);
            return Err(Undone::Failed(problem));
        }
        Ok(Done {
            measured: Measured::Request(record(slot, &asked, prompt_tokens, &answer, started)),
            steps: answer.timings.steps.iter().map(|step| step.total).collect(),
            tokens: answer.sequences.iter().map(|sequence| sequence.ids.len()).sum(),
        })
    }
}

fn record(slot: usize, asked: &Asked, prompt_tokens: usize, answer: &Answer, started: Duration) -> Request {
    let timings = &answer.timings;
    Request {
        slot,
        seq_len: asked.seq_len,
        length: (asked.length != asked.seq_len).then_some(asked.length),
        batch: answer.sequences.len(),
        context_tokens: asked.context.len(),
        prompt_tokens,
        generated_tokens: timings.steps.len() + 1,
        started_ms: ms(started),
        ttft_ms: ms(timings.tokenizer + timings.first_step),
        tokenizer_ms: asked.tokenized.then(|| ms(timings.tokenizer)),
        first_step_ms: ms(timings.first_step),
        embed_ms: ms(timings.embed),
        prefill_ms: ms(timings.prefill),
        sample_ms: ms(timings.sample),
        steps_ms: timings.steps.iter().map(|step| ms(step.total)).collect(),
        resident_bytes: None,
        private_bytes: None,
    }
}
