//! From a prompt to an answer, with every phase timed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::clock::Clock;
use super::driver::Driver;
use super::error::{GenerateError, Result};
use super::sample::{self, Sampler, Sampling};
use super::text::{Input, Text};
use anemeter_base::advice::Remedy;
use anemeter_convert::bundle::{Bundle, Chunk};
use anemeter_runtime::{LoadOptions, Runtime, RuntimeError, Session, adapted};

/// A bundle that answers.
pub struct Generator {
    driver: Driver,
    text: Option<Arc<Text>>,
    clock: Arc<dyn Clock>,
}

/// Tokens to begin with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The tokens.
    pub ids: Vec<u32>,
    /// What it took to make them from text.
    pub tokenizing: Duration,
}

/// One generation: prompt, limits and sampling.
#[derive(Debug, Clone)]
pub struct Request {
    /// A prompt per sequence of the batch, or one for all.
    pub prompts: Vec<Prompt>,
    /// Most tokens to generate; at least one.
    pub max_tokens: usize,
    /// How tokens are picked.
    pub sampling: Sampling,
    /// Tokens that end a sequence.
    pub ends: Vec<u32>,
    /// The sequence length or context to begin with, in place of the shortest that fits.
    pub length: Option<usize>,
    /// Whether the prompts go on after what the driver has taken in, at the length in use.
    pub continues: bool,
    /// How many of the likeliest tokens to record per step.
    pub top_logits: usize,
}

/// A token that was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledToken {
    /// The sequence it belongs to.
    pub sequence: usize,
    /// Its place among the generated ones.
    pub step: usize,
    /// The token.
    pub id: u32,
}

/// Is told a token and the logits that it was picked from, and may break off.
pub type Each<'a> = dyn FnMut(SampledToken, &[f32]) -> Result<ControlFlow<()>> + 'a;

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// A token that ends it was picked.
    Stop,
    /// As many tokens as asked for were generated.
    Length,
    /// The longest sequence length or context is full.
    Context,
    /// The caller broke off.
    Cancelled,
}

/// An answer to one prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Sequence {
    /// The generated tokens, with the one that ended it.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// The likeliest tokens of each step with their logits, as many as asked for.
    pub top: Vec<Vec<(u32, f32)>>,
}

/// Answers to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// One per sequence of the batch.
    pub sequences: Vec<Sequence>,
    /// What it took.
    pub timings: Timings,
    /// Lengths in use after the first and after the last token.
    pub lengths: (usize, usize),
}

/// How long the phases of an answer took. Time to the first token is `tokenizer + first_step`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timings {
    /// Chat template and tokenizer.
    pub tokenizer: Duration,
    /// Token vectors of the prompt, where a function of their own or the host makes them.
    pub embed: Duration,
    /// The prompt through the model: inputs, predictions, caches.
    pub prefill: Duration,
    /// Picking the first token.
    pub sample: Duration,
    /// From tokens to the first picked token: `embed`, `prefill`, `sample` and what lies between.
    pub first_step: Duration,
    /// Every token after the first.
    pub steps: Vec<Step>,
}

/// How long a token took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    /// Looking up its embedding.
    pub embed: Duration,
    /// The model: inputs, predictions, caches.
    pub predict: Duration,
    /// Picking the next token.
    pub sample: Duration,
    /// All of it and what lies between, but not what the caller does with the token.
    pub total: Duration,
}

/// Loads every chunk of a bundle and starts a session of each.
pub fn sessions(bundle: &Bundle, runtime: &dyn Runtime, how: &LoadOptions) -> Result<Vec<Box<dyn Session>>> {
    let session = |chunk: &Chunk| {
        let failed = |source| GenerateError::Runtime { chunk: chunk.file.name.clone(), source };
        let package = match runtime.open(&bundle.file_for(chunk, runtime.name())?) {
            Err(RuntimeError::Package(error)) => return Err(error.into()),
            opened => opened.map_err(failed)?,
        };
        let loaded = runtime.load(&package, how).map_err(failed)?;
        Ok(adapted(loaded, &chunk.calls(runtime.name())).session())
    };
    bundle.manifest().chunks.iter().map(session).collect()
}

impl Generator {
    /// A generator over a driver; without `text` it takes token ids only.
    pub fn new(driver: Driver, text: Option<Arc<Text>>, clock: Arc<dyn Clock>) -> Generator {
        Generator { driver, text, clock }
    }

    /// The tokenizer and what belongs to it.
    pub fn text(&self) -> Option<&Arc<Text>> {
        self.text.as_ref()
    }

    /// The driver, for lengths and sizes.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The driver, for logits.
    pub fn driver_mut(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// A prompt from text.
    pub fn prompt(&self, input: Input<'_>) -> Result<Prompt> {
        let text = self.text.as_ref().ok_or_else(|| {
            GenerateError::request("the bundle has no tokenizer").with_help(Remedy::GiveTokenIds)
        })?;
        let longest = self.driver.longest();
        let began = self.clock.now();
        let ids = text.tokens(input, longest)?;
        Ok(Prompt { ids, tokenizing: self.clock.now().saturating_sub(began) })
    }

    /// Answers a request; `each` is told every token as it is picked and may break off.
    pub fn generate(
        &mut self,
        request: &Request,
        each: &mut dyn FnMut(SampledToken) -> Result<ControlFlow<()>>,
    ) -> Result<Answer> {
        self.generate_with_logits(request, &mut |picked, _| each(picked))
    }

    /// The same; `each` is told the logits as well that a token was picked from.
    pub fn generate_with_logits(&mut self, request: &Request, each: &mut Each<'_>) -> Result<Answer> {
        let mut run = Run::new(self, request)?;
        let result = run.first().and_then(|()| run.rest(each));
        let answer = run.answer();
        if result.is_err() {
            self.driver.taint();
        }
        result.map(|()| answer)
    }
}

/// A request being answered.
struct Run<'a> {
    driver: &'a mut Driver,
    clock: &'a dyn Clock,
    request: &'a Request,
    samplers: Vec<Sampler>,
    /// The latest token of each sequence.
    latest: Vec<u32>,
    ids: Vec<Vec<u32>>,
    finished: Vec<Option<Finish>>,
    top: Vec<Vec<Vec<(u32, f32)>>>,
    timings: Timings,
    first_length: usize,
}

impl<'a> Run<'a> {
    fn new(generator: &'a mut Generator, request: &'a Request) -> Result<Run<'a>> {
        let batch = generator.driver.batch();
        if let Some(problem) = request.sampling.problem() {
            return Err(GenerateError::request(problem));
        }
        let samples = request.sampling.temperature > 0.0 && request.sampling.top_k != Some(1);
        if samples && !generator.driver.gives_all_logits() {
            let problem = "the packages pick the next token themselves and give no logits to sample from";
            return Err(GenerateError::request(problem).with_help("decode greedily: temperature 0"));
        }
        if request.max_tokens == 0 {
            return Err(GenerateError::request("no tokens are asked for; at least one must be"));
        }
        if request.prompts.len() != 1 && request.prompts.len() != batch {
            let problem = format!("{} prompts for a bundle of batch {batch}", request.prompts.len());
            return Err(GenerateError::request(problem).with_help("give one for all or one for each"));
        }
        let most = request.max_tokens.min(generator.driver.longest() + 1);
        let sampler = |sequence| Sampler::new(request.sampling.clone(), sequence);
        Ok(Run {
            driver: &mut generator.driver,
            clock: &*generator.clock,
            request,
            samplers: (0..batch).map(sampler).collect(),
            latest: vec![0; batch],
            ids: (0..batch).map(|_| Vec::with_capacity(most)).collect(),
            finished: vec![None; batch],
            top: vec![Vec::new(); batch],
            timings: Timings {
                tokenizer: request.prompts.iter().map(|prompt| prompt.tokenizing).sum(),
                steps: Vec::with_capacity(most),
                ..Timings::default()
            },
            first_length: 0,
        })
    }

    /// Takes the prompts in and picks the first tokens.
    fn first(&mut self) -> Result<()> {
        let prompts: Vec<&[u32]> = (0..self.latest.len())
            .map(|b| &self.request.prompts[b.min(self.request.prompts.len() - 1)].ids[..])
            .collect();
        let began = self.clock.now();
        match self.request.continues {
            true => self.driver.append(&prompts)?,
            false => self.driver.prefill(&prompts, self.request.length)?,
        }
        let predicted = self.clock.now();
        self.pick()?;
        let picked = self.clock.now();
        let step = self.driver.timings();
        self.timings.embed = step.embed;
        self.timings.prefill = step.predict;
        self.timings.sample = picked.saturating_sub(predicted);
        self.timings.first_step = picked.saturating_sub(began);
        self.first_length = self.driver.length();
        Ok(())
    }

    /// Goes on until all sequences have ended.
    fn rest(&mut self, each: &mut Each<'_>) -> Result<()> {
        loop {
            self.record(each)?;
            if self.finished.iter().all(Option::is_some) {
                return Ok(());
            }
            let began = self.clock.now();
            self.driver.step(&self.latest)?;
            let predicted = self.clock.now();
            self.pick()?;
            let picked = self.clock.now();
            let step = self.driver.timings();
            self.timings.steps.push(Step {
                embed: step.embed,
                predict: step.predict,
                sample: picked.saturating_sub(predicted),
                total: picked.saturating_sub(began),
            });
        }
    }

    /// Picks a token for every sequence that goes on; the others repeat theirs.
    fn pick(&mut self) -> Result<()> {
        for (sequence, sampler) in self.samplers.iter_mut().enumerate() {
            if self.finished[sequence].is_some() {
                continue;
            }
            let picked = sampler.pick(self.driver.logits(sequence));
            self.latest[sequence] = picked.map_err(|unpickable| GenerateError::Logits {
                step: self.ids[sequence].len(),
                sequence,
                problem: unpickable.to_string(),
            })?;
        }
        Ok(())
    }

    /// Notes the picked tokens and which sequences they end.
    fn record(&mut self, each: &mut Each<'_>) -> Result<()> {
        let is_full = self.driver.room() == 0;
        for (sequence, &id) in self.latest.iter().enumerate() {
            if self.finished[sequence].is_some() {
                continue;
            }
            let step = self.ids[sequence].len();
            self.ids[sequence].push(id);
            if self.request.top_logits > 0 {
                let top = sample::top(self.driver.logits(sequence), self.request.top_logits);
                self.top[sequence].push(top);
            }
            let broke_off =
                each(SampledToken { sequence, step, id }, self.driver.logits(sequence))?.is_break();
            self.finished[sequence] = match () {
                () if self.request.ends.contains(&id) => Some(Finish::Stop),
                () if broke_off => Some(Finish::Cancelled),
                () if step + 1 >= self.request.max_tokens => Some(Finish::Length),
                () if is_full => Some(Finish::Context),
                () => None,
            };
        }
        Ok(())
    }

    fn answer(self) -> Answer {
        let sequences = self.ids.into_iter().zip(self.finished).zip(self.top);
        let sequence = |((ids, finish), top): ((Vec<u32>, Option<Finish>), _)| Sequence {
            ids,
            finish: finish.unwrap_or(Finish::Cancelled),
            top,
        };
        Answer {
            sequences: sequences.map(sequence).collect(),
            timings: self.timings,
            lengths: (self.first_length, self.driver.length()),
        }
    }
}
