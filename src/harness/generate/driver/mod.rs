//! Runs the functions of a bundle over sequences of tokens.
//!
//! Whatever the form, a [`Driver`] takes prompts in, then one token per sequence at a time, and gives the logits
//! that follow. It begins at the shortest length that fits and moves on to the next when that is full. Once a
//! length has been used, a step reuses all of its buffers.
//!
//! An [`Engine`] does the work: one for the functions of an export, one for packages of others, which a contract
//! describes.

mod buffer;
mod cache;
mod call;
mod chunk_runner;
mod contract;
mod embedding;
mod export;
mod frame;
mod layout;
mod recurrent;
mod rotation;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::clock::Clock;
use super::error::{GenerateError, Result};
use anemeter_base::vocabulary::KvForm;
use anemeter_convert::bundle::{Bundle, Manifest};
use anemeter_runtime::{Observer, Session};
use contract::ContractEngine;
use export::ExportEngine;
use layout::Layout;
pub(crate) use rotation::RotationTable;

/// How long parts of the last call took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTimings {
    /// Turning ids into vectors outside the main functions.
    pub embed: Duration,
    /// Everything else: inputs, predictions of all chunks, caches, logits.
    pub predict: Duration,
}

/// Takes tokens in and gives logits.
trait Engine: Send {
    /// The sizes it works with.
    fn layout(&self) -> &Layout;

    /// The length in use.
    fn length(&self) -> usize;

    /// Tokens of the fullest sequence.
    fn fullest(&self) -> usize;

    /// Logits after the last token of a sequence.
    fn logits(&self, sequence: usize) -> &[f32];

    /// Whether those are all logits, and not only the largest.
    fn gives_all_logits(&self) -> bool {
        true
    }

    /// Forgets what was before and takes a prompt per sequence at a length that they fit.
    fn prefill(&mut self, prompts: &[&[u32]], length: usize) -> Result<()>;

    /// Whether a prompt can be added to what is kept. Otherwise all tokens are computed again.
    fn adds_prompts(&self) -> bool;

    /// Takes more tokens per sequence, as prompts are taken in, at the length in use.
    fn append(&mut self, prompts: &[&[u32]]) -> Result<()>;

    /// Takes one more token per sequence, at a longer length if one is given.
    fn step(&mut self, ids: &[u32], longer: Option<usize>) -> Result<()>;

    /// Says that what is kept may hold numbers that are not finite.
    fn taint(&mut self);

    /// Time that turning ids into vectors took since it was last asked for.
    fn embedding_time(&mut self) -> Duration;

    /// A session per package.
    fn sessions(&mut self) -> Vec<&mut dyn Session>;

    /// Positions of the first sequence that each prediction took, while somebody watches.
    fn spans(&mut self) -> &mut Option<Vec<Range<usize>>>;
}

/// A bundle with a session per chunk, in one form.
pub struct Driver {
    engine: Box<dyn Engine>,
    clock: Arc<dyn Clock>,
    timings: StepTimings,
}

impl Driver {
    /// A driver over one session per chunk. `form` is one of the bundle's, or its first.
    pub fn new(
        bundle: &Bundle,
        sessions: Vec<Box<dyn Session>>,
        form: Option<KvForm>,
        clock: Arc<dyn Clock>,
    ) -> Result<Driver> {
        Driver::over(bundle.manifest(), bundle.folder(), sessions, form, clock)
    }

    /// A driver over a description, with the folder of the files that it names.
    pub fn over(
        manifest: &Manifest,
        folder: &Path,
        sessions: Vec<Box<dyn Session>>,
        form: Option<KvForm>,
        clock: Arc<dyn Clock>,
    ) -> Result<Driver> {
        let engine: Box<dyn Engine> = match &manifest.contract {
            Some(contract) => {
                Box::new(ContractEngine::new(manifest, contract, sessions, folder, form, Arc::clone(&clock))?)
            }
            None => {
                let host = manifest.host_embeddings.as_ref().map(|file| folder.join(&file.name));
                Box::new(ExportEngine::new(manifest, host.as_deref(), sessions, form, Arc::clone(&clock))?)
            }
        };
        Ok(Driver { engine, clock, timings: StepTimings::default() })
    }

    /// Watches the following predictions with an observer per chunk.
    pub fn watch(&mut self, observers: Vec<Box<dyn Observer>>) {
        for (session, observer) in self.engine.sessions().into_iter().zip(observers) {
            session.observe(Some(observer));
        }
        *self.engine.spans() = Some(Vec::new());
    }

    /// Stops watching; gives the observers back, and the positions that each prediction took.
    pub fn unwatch(&mut self) -> (Vec<Box<dyn Observer>>, Vec<Range<usize>>) {
        let sessions = self.engine.sessions();
        let observers = sessions.into_iter().filter_map(|session| session.observe(None)).collect();
        (observers, self.engine.spans().take().unwrap_or_default())
    }

    /// Sequences of one prediction.
    pub fn batch(&self) -> usize {
        self.engine.layout().batch
    }

    /// Tokens in the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.engine.layout().vocabulary
    }

    /// The form in use.
    pub fn form(&self) -> KvForm {
        self.engine.layout().form
    }

    /// The lengths there are, shortest first.
    pub fn lengths(&self) -> &[usize] {
        &self.engine.layout().buckets
    }

    /// The longest of them.
    pub fn longest(&self) -> usize {
        self.engine.layout().longest()
    }

    /// The length in use: of sequences, caches or states.
    pub fn length(&self) -> usize {
        self.engine.length()
    }

    /// Tokens that the fullest sequence can still take.
    pub fn room(&self) -> usize {
        self.longest() - self.engine.fullest()
    }

    /// Logits after the last token of a sequence.
    pub fn logits(&self, sequence: usize) -> &[f32] {
        self.engine.logits(sequence)
    }

    /// Whether those are all logits. A package that picks the token itself gives no more than the largest, and the others
    /// are minus infinity.
    pub fn gives_all_logits(&self) -> bool {
        self.engine.gives_all_logits()
    }

    /// What the last call took.
    pub fn timings(&self) -> StepTimings {
        self.timings
    }

    /// Says that the logits were of no use, so that nothing of this run is kept.
    pub(super) fn taint(&mut self) {
        self.engine.taint();
    }

    /// Forgets what was before and takes a prompt per sequence, at the shortest length that fits or the one asked
    /// for. With states all prompts must be of one length.
    pub fn prefill(&mut self, prompts: &[&[u32]], length: Option<usize>) -> Result<()> {
        self.timed(|engine| {
            engine.layout().check_prompts(prompts)?;
            let longest = prompts.iter().map(|ids| ids.len()).max().unwrap_or(0);
            let length = engine.layout().start(longest, length)?;
            engine.prefill(prompts, length)
        })
    }

    /// Whether a prompt can be added to a context that is kept. Otherwise the packages compute the context again with it.
    pub fn adds_prompts(&self) -> bool {
        self.engine.adds_prompts()
    }

    /// Takes more tokens per sequence after those that are there, as prompts are taken in. They must fit the length in use.
    pub fn append(&mut self, prompts: &[&[u32]]) -> Result<()> {
        self.timed(|engine| {
            engine.layout().check_prompts(prompts)?;
            let more = prompts.iter().map(|ids| ids.len()).max().unwrap_or(0);
            let (tokens, length) = (engine.fullest() + more, engine.length());
            match tokens > length {
                true => {
                    Err(GenerateError::request(format!("length {length} is too short for {tokens} tokens")))
                }
                false => engine.append(prompts),
            }
        })
    }

    /// Takes one more token per sequence.
    pub fn step(&mut self, ids: &[u32]) -> Result<()> {
        self.timed(|engine| {
            let single: SmallVec<[&[u32]; 4]> = ids.chunks(1).collect();
            let layout = engine.layout();
            layout.check_prompts(&single)?;
            let needed = 1 + engine.fullest();
            let longer = match needed > engine.length() {
                true => Some(layout.fit(needed).ok_or_else(|| layout.full())?),
                false => None,
            };
            engine.step(ids, longer)
        })
    }

    /// Logits of each position from the last of the prompt on, with the tokens given: the first `prompt` tokens at once,
    /// then one after the other. All sequences of a batch are given the same.
    pub fn teacher_force(
        &mut self,
        ids: &[u32],
        prompt: usize,
        length: Option<usize>,
        each: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        if !self.gives_all_logits() {
            return Err(GenerateError::request(
                "the packages pick the next token themselves and give no logits",
            ));
        }
        let (first, rest) = ids.split_at_checked(prompt).ok_or_else(|| {
            GenerateError::request(format!("a prompt of {prompt} tokens of a sequence of {}", ids.len()))
        })?;
        let batch = self.batch();
        self.prefill(&SmallVec::<[&[u32]; 4]>::from_elem(first, batch), length)?;
        each(prompt - 1, self.logits(0))?;
        for (position, &id) in (prompt..).zip(rest) {
            self.step(&SmallVec::<[u32; 4]>::from_elem(id, batch))?;
            each(position, self.logits(0))?;
        }
        Ok(())
    }

    fn timed(&mut self, call: impl FnOnce(&mut dyn Engine) -> Result<()>) -> Result<()> {
        let began = self.clock.now();
        let result = call(&mut *self.engine);
        let total = self.clock.now().saturating_sub(began);
        let embed = self.engine.embedding_time();
        self.timings = StepTimings { embed, predict: total.saturating_sub(embed) };
        result
    }
}
