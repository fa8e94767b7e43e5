//! Runs the functions of a bundle over sequences of tokens: inputs, caches, lengths, the order of chunks.
//!
//! Whatever the form, a [`Driver`] takes prompts in, then one token per sequence at a time, and gives the logits
//! that follow. It begins at the shortest length that fits and moves on to the next when that is full. Once a
//! length has been used, a step allocates nothing.

mod buffer;
mod cache;
mod call;
mod chunk_runner;
mod embedding;
mod frame;
mod layout;
mod rotation;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use half::f16;
use smallvec::SmallVec;

use super::clock::Clock;
use super::error::{GenerateError, Result};
use anemeter_base::vocabulary::{FunctionRole, KvForm};
use anemeter_convert::bundle::{self, Bundle, MANIFEST, Manifest};
use anemeter_kernels::convert::to_f32;
use anemeter_runtime::{Observer, Session};
use call::{Call, TokenBatch};
use chunk_runner::ChunkRunner;
use embedding::HostTable;
use frame::Frame;
use layout::Layout;
use rotation::{RotationTable, count_long};

/// How long parts of the last call took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTimings {
    /// Turning ids into vectors outside the main functions.
    pub embed: Duration,
    /// Everything else: inputs, predictions of all chunks, caches, logits.
    pub predict: Duration,
}

/// A bundle with a session per chunk, in one form.
pub struct Driver {
    layout: Layout,
    chunks: Vec<ChunkRunner>,
    tables: Vec<RotationTable>,
    host: Option<HostTable>,
    frames: Vec<Frame>,
    clock: Arc<dyn Clock>,
    /// Logits of all sequences.
    logits: Vec<f32>,
    /// The current length.
    length: usize,
    /// Tokens that each sequence has consumed.
    consumed: SmallVec<[usize; 4]>,
    /// The tokens themselves, where they may be computed again.
    tokens: Vec<Vec<u32>>,
    /// Tokens of the fullest sequence after the call that is being made.
    seq_len: usize,
    /// What is kept may hold numbers that are not finite.
    tainted: bool,
    timings: StepTimings,
    /// Positions of the first sequence that each prediction took, while somebody watches.
    spans: Option<Vec<Range<usize>>>,
}

impl Driver {
    /// A driver over one session per chunk. `form` is one of the bundle's, or its first.
    pub fn new(
        bundle: &Bundle,
        sessions: Vec<Box<dyn Session>>,
        form: Option<KvForm>,
        clock: Arc<dyn Clock>,
    ) -> Result<Driver> {
        let manifest = bundle.manifest();
        let host = manifest.host_embeddings.as_ref().map(|file| bundle.path(&file.name));
        Driver::over(manifest, host.as_deref(), sessions, form, clock)
    }

    /// A driver over a description, with the file of the host's token vectors if there is one.
    pub fn over(
        manifest: &Manifest,
        host: Option<&Path>,
        sessions: Vec<Box<dyn Session>>,
        form: Option<KvForm>,
        clock: Arc<dyn Clock>,
    ) -> Result<Driver> {
        let layout = Layout::of(manifest, form)?;
        if sessions.is_empty() || sessions.len() != manifest.chunks.len() {
            let problem = format!("has {} chunks for {} sessions", manifest.chunks.len(), sessions.len());
            return Err(GenerateError::file(MANIFEST, problem));
        }
        let architecture = &manifest.architecture;
        let (scale, learned) = (architecture.embedding_scale, architecture.learned_positions);
        let host = host.map(|path| HostTable::open(path, &layout, scale, learned)).transpose()?;
        let mut chunks = Vec::new();
        for (chunk, session) in manifest.chunks.iter().zip(sessions) {
            chunks.push(ChunkRunner::new(&layout, chunk, session)?);
        }
        Ok(Driver {
            tables: RotationTable::all(manifest)?,
            logits: vec![0.0; layout.batch * layout.vocabulary],
            length: layout.buckets[0],
            consumed: SmallVec::from_elem(0, layout.batch),
            tokens: vec![Vec::new(); layout.batch],
            seq_len: 0,
            layout,
            chunks,
            host,
            frames: Vec::new(),
            clock,
            tainted: false,
            timings: StepTimings::default(),
            spans: None,
        })
    }

    /// Watches the following predictions with an observer per chunk.
    pub fn watch(&mut self, observers: Vec<Box<dyn Observer>>) {
        for (part, observer) in self.chunks.iter_mut().zip(observers) {
            part.session.observe(Some(observer));
        }
        self.spans = Some(Vec::new());
    }

    /// Stops watching; gives the observers back, and the positions that each prediction took.
    pub fn unwatch(&mut self) -> (Vec<Box<dyn Observer>>, Vec<Range<usize>>) {
        let observers = self.chunks.iter_mut().filter_map(|part| part.session.observe(None)).collect();
        (observers, self.spans.take().unwrap_or_default())
    }

    /// Sequences of one prediction.
    pub fn batch(&self) -> usize {
        self.layout.batch
    }

    /// Tokens in the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.layout.vocabulary
    }

    /// The form in use.
    pub fn form(&self) -> KvForm {
        self.layout.form
    }

    /// The lengths there are, shortest first.
    pub fn lengths(&self) -> &[usize] {
        &self.layout.buckets
    }

    /// The longest of them.
    pub fn longest(&self) -> usize {
        self.layout.longest()
    }

    /// The length in use: of sequences, caches or states.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Tokens that the fullest sequence can still take.
    pub fn room(&self) -> usize {
        self.layout.longest() - self.fullest()
    }

    /// Tokens of the fullest sequence.
    fn fullest(&self) -> usize {
        *self.consumed.iter().max().expect("a batch has a sequence")
    }

    /// Logits after the last token of a sequence.
    pub fn logits(&self, sequence: usize) -> &[f32] {
        &self.logits[sequence * self.layout.vocabulary..][..self.layout.vocabulary]
    }

    /// What the last call took.
    pub fn timings(&self) -> StepTimings {
        self.timings
    }

    /// Says that the logits were of no use, so that nothing of this run is kept.
    pub(super) fn taint(&mut self) {
        self.tainted = true;
    }

    /// Forgets what was before and takes a prompt per sequence, at the shortest length that fits or the one asked
    /// for. With states all prompts must be of one length.
    pub fn prefill(&mut self, prompts: &[&[u32]], length: Option<usize>) -> Result<()> {
        self.timed(|driver| {
            driver.layout.check_prompts(prompts)?;
            let longest = prompts.iter().map(|ids| ids.len()).max().unwrap_or(0);
            driver.length = driver.layout.start(longest, length)?;
            for (tokens, prompt) in driver.tokens.iter_mut().zip(prompts) {
                tokens.clear();
                tokens.reserve(driver.layout.longest());
                tokens.extend_from_slice(prompt);
            }
            driver.compute_all()
        })
    }

    /// Takes one more token per sequence.
    pub fn step(&mut self, ids: &[u32]) -> Result<()> {
        self.timed(|driver| {
            let single: SmallVec<[&[u32]; 4]> = ids.chunks(1).collect();
            driver.layout.check_prompts(&single)?;
            let needed = 1 + driver.fullest();
            if needed > driver.length {
                let longer = driver.layout.fit(needed).ok_or_else(|| driver.layout.full())?;
                driver.grow(longer)?;
            }
            driver.tokens.iter_mut().zip(ids).for_each(|(tokens, &id)| tokens.push(id));
            if driver.layout.form == KvForm::None || driver.is_rotated_anew(needed) {
                return driver.compute_all();
            }
            driver.seq_len = needed;
            let call = if driver.layout.form == KvForm::State { Call::ExtendOne } else { Call::Decode };
            driver.run(call, &single)
        })
    }

    /// Whether a longer sequence has other rotations than the keys that are kept. transformers computes the cache of
    /// Phi-3 anew at that length, too.
    fn is_rotated_anew(&self, seq_len: usize) -> bool {
        count_long(&self.tables, seq_len) != count_long(&self.tables, self.seq_len)
    }

    /// Forgets what is kept and takes all tokens in.
    fn compute_all(&mut self) -> Result<()> {
        self.reset()?;
        self.seq_len = self.tokens.iter().map(Vec::len).max().unwrap_or(0);
        let tokens = std::mem::take(&mut self.tokens);
        let whole: SmallVec<[&[u32]; 4]> = tokens.iter().map(Vec::as_slice).collect();
        let result = match self.layout.form {
            KvForm::None => self.run(Call::Whole, &whole),
            KvForm::Io => self.run(Call::Prefill, &whole),
            KvForm::State => self.extend(&whole),
        };
        drop(whole);
        self.tokens = tokens;
        result
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
        let (first, rest) = ids.split_at_checked(prompt).ok_or_else(|| {
            GenerateError::request(format!("a prompt of {prompt} tokens of a sequence of {}", ids.len()))
        })?;
        let batch = self.layout.batch;
        self.prefill(&SmallVec::<[&[u32]; 4]>::from_elem(first, batch), length)?;
        each(prompt - 1, self.logits(0))?;
        for (position, &id) in (prompt..).zip(rest) {
            self.step(&SmallVec::<[u32; 4]>::from_elem(id, batch))?;
            each(position, self.logits(0))?;
        }
        Ok(())
    }

    fn timed(&mut self, call: impl FnOnce(&mut Driver) -> Result<()>) -> Result<()> {
        self.timings = StepTimings::default();
        let began = self.clock.now();
        let result = call(self);
        let total = self.clock.now().saturating_sub(began);
        self.timings.predict = total.saturating_sub(self.timings.embed);
        result
    }

    /// Empties sequences; what is kept stays where it is, behind masks, unless it is not finite.
    fn reset(&mut self) -> Result<()> {
        self.consumed.fill(0);
        let (length, tainted) = (self.length, std::mem::take(&mut self.tainted));
        self.chunks.iter_mut().try_for_each(|part| part.restart(length, tainted))
    }

    /// Goes on at a longer length with all that is kept.
    fn grow(&mut self, length: usize) -> Result<()> {
        let kept = self.fullest();
        let old = std::mem::replace(&mut self.length, length);
        let has_states = self.layout.form == KvForm::State;
        for part in &mut self.chunks {
            part.grow_caches(length, kept)?;
            if has_states {
                part.move_state(old, length, kept)?;
            }
        }
        Ok(())
    }

    /// Takes prompts in by pieces.
    fn extend(&mut self, prompts: &[&[u32]]) -> Result<()> {
        let (query, count) = (self.layout.query, prompts[0].len());
        let mut start = 0;
        while start < count {
            // A piece must not run over the end of the state, so the last one may begin with tokens that are there.
            let begin = start.min(self.length - query);
            let end = count.min(begin + query);
            let piece: SmallVec<[&[u32]; 4]> = prompts.iter().map(|prompt| &prompt[begin..end]).collect();
            self.consumed.fill(begin);
            self.run(Call::ExtendMany, &piece)?;
            start = end;
        }
        Ok(())
    }

    /// One prediction of all chunks; the tokens count as consumed afterwards.
    fn run(&mut self, call: Call, ids: &[&[u32]]) -> Result<()> {
        let index = self.frame(call)?;
        let fed = TokenBatch { ids: ids.into(), starts: self.consumed.clone() };
        self.frames[index].fill_tokens(&fed);
        let began = self.clock.now();
        if self.embed(index, &fed)? {
            self.timings.embed += self.clock.now().saturating_sub(began);
        }
        self.frames[index].fill_places(&self.tables, &fed, self.seq_len);
        self.predict(index, &fed)?;
        self.collect(index)?;
        if let Some(spans) = &mut self.spans {
            spans.push(self.consumed[0]..self.consumed[0] + ids[0].len());
        }
        self.consumed.iter_mut().zip(ids).for_each(|(consumed, ids)| *consumed += ids.len());
        Ok(())
    }

    /// The inputs of a call at the current length, made if they are new.
    fn frame(&mut self, call: Call) -> Result<usize> {
        let length = self.length;
        if let Some(index) = self.frames.iter().position(|frame| frame.call == call && frame.length == length)
        {
            return Ok(index);
        }
        let chunks: Vec<&bundle::Chunk> = self.chunks.iter().map(|part| &part.chunk).collect();
        let frame = Frame::new(&self.layout, &chunks, &mut self.tables, call, length)?;
        if frame.vectors().is_some() && frame.embed.is_none() && self.host.is_none() {
            let problem = format!("`{}` takes vectors, and nothing makes them from tokens", frame.function);
            return Err(GenerateError::file(MANIFEST, problem));
        }
        self.frames.push(frame);
        Ok(self.frames.len() - 1)
    }

    /// Turns ids into vectors, unless the functions do so themselves.
    fn embed(&mut self, index: usize, fed: &TokenBatch<'_>) -> Result<bool> {
        let frame = &mut self.frames[index];
        let Some(vectors) = frame.vectors() else { return Ok(false) };
        let Some(wires) = &frame.embed else {
            let Some(host) = &mut self.host else { return Ok(false) };
            let width = frame.width;
            host.write(fed, width, frame.shared_mut(vectors).elements_mut::<f16>());
            return Ok(true);
        };
        self.chunks[0].predict(FunctionRole::EMBED, frame, wires, None)?;
        let output = self.chunks[0].output(FunctionRole::EMBED, "hidden")?;
        let from = output.slice::<f16>().map_err(|e| self.chunks[0].tensor_error(&e))?;
        let to = frame.shared_mut(vectors).elements_mut::<f16>();
        if from.len() != to.len() {
            return Err(self.chunks[0].gave(FunctionRole::EMBED, "vectors of another size"));
        }
        to.copy_from_slice(from);
        Ok(true)
    }

    /// Predicts chunk by chunk and keeps new keys and values.
    fn predict(&mut self, index: usize, fed: &TokenBatch<'_>) -> Result<()> {
        let frame = &self.frames[index];
        let counts: SmallVec<[usize; 4]> = fed.ids.iter().map(|ids| ids.len()).collect();
        for place in 0..self.chunks.len() {
            let (before, rest) = self.chunks.split_at_mut(place);
            let previous = before.last().and_then(|part| part.session.output("hidden_out"));
            rest[0].predict(&frame.function, frame, &frame.wires[place], previous)?;
            rest[0].keep(&frame.function, &fed.starts, &counts)?;
        }
        Ok(())
    }

    /// Takes the logits of all sequences, part by part.
    fn collect(&mut self, index: usize) -> Result<()> {
        let (frame, part) = (&self.frames[index], &self.chunks[self.chunks.len() - 1]);
        let (batch, vocabulary) = (self.layout.batch, self.layout.vocabulary);
        let mut offset = 0;
        for name in &frame.logits {
            let logits = part.output(&frame.function, name)?;
            let size = (logits.len() / batch).min(vocabulary - offset);
            for sequence in 0..batch {
                let out = &mut self.logits[sequence * vocabulary + offset..][..size];
                to_f32(&logits, sequence * size..(sequence + 1) * size, out);
            }
            offset += size;
        }
        match offset == vocabulary {
            true => Ok(()),
            false => Err(part.gave(&frame.function, &format!("{offset} logits for {vocabulary} tokens"))),
        }
    }
}
