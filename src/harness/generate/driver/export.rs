//! The functions of an export over sequences of tokens: inputs, caches, lengths, the order of chunks.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use half::f16;
use half::slice::HalfFloatSliceExt;
use smallvec::SmallVec;

use super::Engine;
use super::call::{Call, TokenBatch};
use super::chunk_runner::ChunkRunner;
use super::embedding::HostTable;
use super::frame::{Embed, Frame, LOOKED_UP};
use super::layout::Layout;
use super::rotation::{RotationTable, count_long};
use crate::generate::clock::Clock;
use crate::generate::error::{GenerateError, Result};
use anemeter_base::vocabulary::KvForm;
use anemeter_convert::bundle::{self, MANIFEST, Manifest};
use anemeter_kernels::convert::to_f32;
use anemeter_runtime::Session;

/// A bundle that was exported, with a session per chunk, in one form.
pub(super) struct ExportEngine {
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
    /// Time that turning ids into vectors took since it was last asked for.
    embedding: Duration,
    /// Positions of the first sequence that each prediction took, while somebody watches.
    spans: Option<Vec<Range<usize>>>,
}

impl ExportEngine {
    /// An engine over a description, with the file of the host's token vectors if there is one.
    pub(super) fn new(
        manifest: &Manifest,
        host: Option<&Path>,
        sessions: Vec<Box<dyn Session>>,
        form: Option<KvForm>,
        clock: Arc<dyn Clock>,
    ) -> Result<ExportEngine> {
        let layout = Layout::of(manifest, form)?;
        if sessions.is_empty() || sessions.len() != manifest.chunks.len() {
            let problem = format!("has {} chunks for {} sessions", manifest.chunks.len(), sessions.len());
            return Err(GenerateError::file(MANIFEST, problem));
        }
        let host = host
            .zip(manifest.architecture.as_ref())
            .map(|(path, sizes)| HostTable::open(path, &layout, sizes));
        let host = host.transpose()?;
        let mut chunks = Vec::new();
        for (chunk, session) in manifest.chunks.iter().zip(sessions) {
            chunks.push(ChunkRunner::new(&layout, chunk, session)?);
        }
        Ok(ExportEngine {
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
            embedding: Duration::ZERO,
            spans: None,
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
            KvForm::State => self.extend(&whole, 0),
        };
        drop(whole);
        self.tokens = tokens;
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

    /// Takes the tokens of sequences from `start` on in by pieces.
    fn extend(&mut self, prompts: &[&[u32]], mut start: usize) -> Result<()> {
        let (query, count) = (self.layout.query, prompts[0].len());
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
            self.embedding += self.clock.now().saturating_sub(began);
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
        let Some(Embed { function, wires }) = &frame.embed else {
            let Some(host) = &mut self.host else { return Ok(false) };
            let width = frame.width;
            host.write(fed, width, frame.shared_mut(vectors).elements_mut::<f16>());
            if let Some(looked_up) = frame.looked_up() {
                host.write_per_layer(fed, width, frame.shared_mut(looked_up).elements_mut::<f16>());
            }
            return Ok(true);
        };
        let function = function.clone();
        self.chunks[0].predict(&function, frame, wires, &[])?;
        let looked_up = frame.looked_up().map(|slot| (LOOKED_UP, slot));
        for (name, slot) in std::iter::once(("hidden", vectors)).chain(looked_up) {
            let output = self.chunks[0].output(&function, name)?;
            let to = frame.shared_mut(slot).elements_mut::<f16>();
            if output.len() != to.len() {
                return Err(self.chunks[0].gave(&function, "vectors of another size"));
            }
            match output.slice::<f32>() {
                Ok(wide) => to.convert_from_f32_slice(wide),
                Err(_) => {
                    to.copy_from_slice(output.slice::<f16>().map_err(|e| self.chunks[0].tensor_error(&e))?);
                }
            }
        }
        Ok(true)
    }

    /// Predicts chunk by chunk and keeps new keys and values.
    fn predict(&mut self, index: usize, fed: &TokenBatch<'_>) -> Result<()> {
        let frame = &self.frames[index];
        let counts: SmallVec<[usize; 4]> = fed.ids.iter().map(|ids| ids.len()).collect();
        for place in 0..self.chunks.len() {
            let (before, rest) = self.chunks.split_at_mut(place);
            rest[0].predict(&frame.function, frame, &frame.wires[place], before)?;
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

impl Engine for ExportEngine {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn length(&self) -> usize {
        self.length
    }

    fn fullest(&self) -> usize {
        *self.consumed.iter().max().expect("a batch has a sequence")
    }

    fn logits(&self, sequence: usize) -> &[f32] {
        &self.logits[sequence * self.layout.vocabulary..][..self.layout.vocabulary]
    }

    fn prefill(&mut self, prompts: &[&[u32]], length: usize) -> Result<()> {
        self.length = length;
        for (tokens, prompt) in self.tokens.iter_mut().zip(prompts) {
            tokens.clear();
            tokens.reserve(self.layout.longest());
            tokens.extend_from_slice(prompt);
        }
        self.compute_all()
    }

    fn adds_prompts(&self) -> bool {
        self.layout.form == KvForm::State
    }

    fn append(&mut self, prompts: &[&[u32]]) -> Result<()> {
        let start = self.fullest();
        for (tokens, prompt) in self.tokens.iter_mut().zip(prompts) {
            tokens.extend_from_slice(prompt);
        }
        let seq_len = self.tokens.iter().map(Vec::len).max().unwrap_or(0);
        if !self.adds_prompts() || self.is_rotated_anew(seq_len) {
            return self.compute_all();
        }
        self.seq_len = seq_len;
        let tokens = std::mem::take(&mut self.tokens);
        let whole: SmallVec<[&[u32]; 4]> = tokens.iter().map(Vec::as_slice).collect();
        let result = self.extend(&whole, start);
        drop(whole);
        self.tokens = tokens;
        result
    }

    fn step(&mut self, ids: &[u32], longer: Option<usize>) -> Result<()> {
        let needed = 1 + self.fullest();
        if let Some(longer) = longer {
            self.grow(longer)?;
        }
        self.tokens.iter_mut().zip(ids).for_each(|(tokens, &id)| tokens.push(id));
        if self.layout.form == KvForm::None || self.is_rotated_anew(needed) {
            return self.compute_all();
        }
        self.seq_len = needed;
        let call = if self.layout.form == KvForm::State { Call::ExtendOne } else { Call::Decode };
        let single: SmallVec<[&[u32]; 4]> = ids.chunks(1).collect();
        self.run(call, &single)
    }

    fn taint(&mut self) {
        self.tainted = true;
    }

    fn embedding_time(&mut self) -> Duration {
        std::mem::take(&mut self.embedding)
    }

    fn sessions(&mut self) -> Vec<&mut dyn Session> {
        self.chunks.iter_mut().map(|part| &mut *part.session as &mut dyn Session).collect()
    }

    fn spans(&mut self) -> &mut Option<Vec<Range<usize>>> {
        &mut self.spans
    }
}
