//! Packages of others over a sequence of tokens, as their contract says.

mod input;
mod outputs;
mod pass;
mod runner;
mod table;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::layout::Layout;
use crate::generate::clock::Clock;
use crate::generate::error::{GenerateError, Result};
use anemeter_base::vocabulary::KvForm;
use anemeter_convert::bundle::contract::{Contract, ContractRole};
use anemeter_convert::bundle::{MANIFEST, Manifest};
use anemeter_runtime::Session;
use input::Piece;
use pass::Pass;
use runner::Runners;
use table::Files;

/// Packages with a session each, driven by a contract.
pub(super) struct ContractEngine {
    layout: Layout,
    runners: Runners,
    /// Takes some tokens of a prompt in; without it they are taken in one by one.
    prefill: Option<Pass>,
    /// Takes one token in, or the whole sequence where nothing is kept.
    next: Pass,
    clock: Arc<dyn Clock>,
    logits: Vec<f32>,
    length: usize,
    tokens: Vec<u32>,
    /// Tokens that are in the states or caches.
    consumed: usize,
    tainted: bool,
    embedding: Duration,
    spans: Option<Vec<Range<usize>>>,
}

impl ContractEngine {
    /// An engine over a session per package, in the order of the bundle's chunks.
    pub(super) fn new(
        manifest: &Manifest,
        contract: &Contract,
        sessions: Vec<Box<dyn Session>>,
        folder: &Path,
        form: Option<KvForm>,
        clock: Arc<dyn Clock>,
    ) -> Result<ContractEngine> {
        let layout = Layout::of_contract(contract, form)?;
        let files = Files { folder, vocabulary: layout.vocabulary, positions: layout.longest() };
        let runners = Runners::new(manifest, contract, sessions)?;
        let is_whole = contract.functions().any(|(_, function)| function.role == ContractRole::WholeSequence);
        let next = if is_whole { ContractRole::WholeSequence } else { ContractRole::Decode };
        let next = Pass::new(manifest, contract, next, &files)?;
        let next = next.filter(Pass::gives_next).ok_or_else(|| {
            GenerateError::file(MANIFEST, "`contract` has no functions that go from a token to logits")
        })?;
        let prefill = Pass::new(manifest, contract, ContractRole::Prefill, &files)?;
        let prefill = prefill.filter(|pass| pass.tokens().is_none_or(|tokens| tokens <= layout.longest()));
        Ok(ContractEngine {
            logits: vec![0.0; layout.vocabulary],
            length: layout.buckets[0],
            layout,
            runners,
            prefill,
            next,
            clock,
            tokens: Vec::new(),
            consumed: 0,
            tainted: false,
            embedding: Duration::ZERO,
            spans: None,
        })
    }

    /// Takes the tokens in that are not yet: the first ones by the functions for prompts, as far as those go.
    fn extend(&mut self) -> Result<()> {
        let count = self.tokens.len();
        if let Some(prefill) = &self.prefill {
            // Where a prompt gives no logits, its last token is decoded.
            let (gives, tokens) = (prefill.gives_next(), prefill.tokens());
            let end = if gives { count } else { count - 1 };
            let whole_to = prefill.whole_pieces_to();
            let takes = |start: usize| match (whole_to, tokens) {
                (Some(last), Some(tokens)) => start + tokens <= last.min(end),
                _ => start < end,
            };
            let mut start = self.consumed;
            while takes(start) {
                // A piece must not run over the end of the context, so the last one may begin with tokens that are there.
                let begin = tokens.map_or(start, |tokens| start.min(self.length - tokens));
                let stop = tokens.map_or(end, |tokens| end.min(begin + tokens));
                self.run(true, begin..stop)?;
                start = stop;
            }
        }
        while self.consumed < count {
            self.run(false, self.consumed..self.consumed + 1)?;
        }
        Ok(())
    }

    /// Takes all tokens in at once.
    fn compute_all(&mut self) -> Result<()> {
        self.run(false, 0..self.tokens.len())
    }

    /// One prediction of all functions of a pass.
    fn run(&mut self, is_prompt: bool, span: Range<usize>) -> Result<()> {
        let pass = match (&mut self.prefill, is_prompt) {
            (Some(prefill), true) => prefill,
            _ => &mut self.next,
        };
        let width = pass.tokens().unwrap_or(if pass.is_whole() { self.length } else { span.len() });
        let piece = Piece {
            ids: &self.tokens[span.clone()],
            begin: span.start,
            width,
            context: if pass.is_whole() { width } else { self.length },
        };
        self.embedding += pass.run(&mut self.runners, &piece, &*self.clock)?;
        if pass.gives_next() {
            pass.collect(&self.runners, &piece, &mut self.logits)?;
        }
        self.consumed = span.end;
        if let Some(spans) = &mut self.spans {
            spans.push(span);
        }
        Ok(())
    }

    fn keeps_nothing(&self) -> bool {
        self.next.is_whole()
    }
}

impl Engine for ContractEngine {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn length(&self) -> usize {
        self.length
    }

    fn fullest(&self) -> usize {
        self.consumed
    }

    fn logits(&self, _: usize) -> &[f32] {
        &self.logits
    }

    fn gives_all_logits(&self) -> bool {
        self.next.gives_all_logits()
    }

    fn prefill(&mut self, prompts: &[&[u32]], length: usize) -> Result<()> {
        self.length = length;
        self.consumed = 0;
        self.tokens.clear();
        self.tokens.reserve(self.layout.longest());
        self.tokens.extend_from_slice(prompts[0]);
        self.runners.restart(std::mem::take(&mut self.tainted))?;
        if self.keeps_nothing() { self.compute_all() } else { self.extend() }
    }

    fn adds_prompts(&self) -> bool {
        !self.keeps_nothing()
    }

    fn append(&mut self, prompts: &[&[u32]]) -> Result<()> {
        self.tokens.extend_from_slice(prompts[0]);
        if self.keeps_nothing() { self.compute_all() } else { self.extend() }
    }

    fn step(&mut self, ids: &[u32], longer: Option<usize>) -> Result<()> {
        self.length = longer.unwrap_or(self.length);
        self.tokens.push(ids[0]);
        if self.keeps_nothing() {
            self.compute_all()
        } else {
            self.run(false, self.consumed..self.consumed + 1)
        }
    }

    fn taint(&mut self) {
        self.tainted = true;
    }

    fn embedding_time(&mut self) -> Duration {
        std::mem::take(&mut self.embedding)
    }

    fn sessions(&mut self) -> Vec<&mut dyn Session> {
        self.runners.sessions()
    }

    fn spans(&mut self) -> &mut Option<Vec<Range<usize>>> {
        &mut self.spans
    }
}
