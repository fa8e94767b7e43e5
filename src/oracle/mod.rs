//! Independent references: each checkpoint at f32 on candle, next to nothing shared with the exporter.
//!
//! Where candle-transformers computes what a configuration asks for, its network is used. Where it has none, or one
//! that is not right for the configuration, a plain network of this module takes its place. The exporter's model
//! lends only the check that every tensor is there in its shape.

mod error;
mod network;
mod plain;
mod reader;
mod ready;
mod settings;
mod trace;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;

use crate::checkpoint::{Checkpoint, Config};
use crate::model;
use error::Result;
use network::Network;
use reader::{GPT2, LLAMA, Names};
use ready::Ready;

pub use error::OracleError;
pub use trace::{Point, Trace, trace};

/// A model that gives logits for tokens, one sequence at a time.
pub trait Oracle {
    /// Feeds further tokens and gives the logits after the last of them.
    fn feed(&mut self, ids: &[u32]) -> std::result::Result<Vec<f32>, OracleError>;

    /// Forgets all tokens.
    fn reset(&mut self);

    /// Tokens in the vocabulary.
    fn vocabulary(&self) -> usize;

    /// What computes, in words.
    fn describe(&self) -> String;
}

/// The references of an architecture.
struct Entry {
    name: &'static str,
    names: Names,
    ready: Option<Ready>,
    plain: fn(&Config, usize, &VarBuilder<'_>) -> Result<Box<dyn Network>>,
}

const ENTRIES: &[Entry] = &[
    Entry { name: "llama", names: LLAMA, ready: Some(ready::llama::DEF), plain: plain::llama::open },
    Entry { name: "mistral", names: LLAMA, ready: Some(ready::mistral::DEF), plain: plain::mistral::open },
    Entry { name: "qwen2", names: LLAMA, ready: Some(ready::qwen2::DEF), plain: plain::qwen2::open },
    Entry { name: "qwen3", names: LLAMA, ready: Some(ready::qwen3::DEF), plain: plain::qwen3::open },
    Entry { name: "gemma3", names: LLAMA, ready: Some(ready::gemma3::DEF), plain: plain::gemma3::open },
    Entry { name: "phi3", names: LLAMA, ready: Some(ready::phi3::DEF), plain: plain::phi3::open },
    Entry { name: "gpt2", names: GPT2, ready: None, plain: plain::gpt2::open },
    Entry { name: "pagating", names: GPT2, ready: None, plain: plain::pagating::open },
    Entry { name: "student", names: LLAMA, ready: Some(ready::llama::DEF), plain: plain::llama::open },
];

/// Opens the reference of a checkpoint for sequences of up to `positions` tokens. All weights are held as f32.
pub fn open(checkpoint: &Checkpoint, positions: usize) -> std::result::Result<Box<dyn Oracle>, OracleError> {
    Ok(Box::new(Reference::open(checkpoint, positions, Choice::Best)?))
}

/// Opens the plain reference, whatever candle-transformers has: a second opinion.
pub fn open_plain(
    checkpoint: &Checkpoint,
    positions: usize,
) -> std::result::Result<Box<dyn Oracle>, OracleError> {
    Ok(Box::new(Reference::open(checkpoint, positions, Choice::Plain)?))
}

/// Which reference to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// That of candle-transformers where it is right.
    Best,
    /// That of this module.
    Plain,
}

struct Reference {
    network: Box<dyn Network>,
    architecture: &'static str,
    vocabulary: usize,
    /// Tokens so far.
    fed: usize,
    limit: usize,
    source: Source,
}

/// Who computes.
#[derive(Debug, Clone, Copy)]
enum Source {
    CandleTransformers,
    /// A network of this module, if need be because candle-transformers does not do something.
    Plain(Option<&'static str>),
}

impl Reference {
    fn open(
        checkpoint: &Checkpoint,
        positions: usize,
        choice: Choice,
    ) -> std::result::Result<Reference, OracleError> {
        let decoder = model::build(checkpoint)?;
        let architecture = decoder.architecture;
        let unknown = || OracleError::Computation { architecture, message: "there is none".to_owned() };
        let entry = ENTRIES.iter().find(|entry| entry.name == architecture).ok_or_else(unknown)?;
        let (network, source) =
            entry.open(checkpoint, positions, choice).map_err(|problem| problem.of(architecture))?;
        let (vocabulary, limit) = (decoder.vocabulary, positions);
        Ok(Reference { network, architecture, vocabulary, fed: 0, limit, source })
    }

    fn check(&self, ids: &[u32]) -> std::result::Result<(), OracleError> {
        if ids.is_empty() {
            return Err(OracleError::NoTokens);
        }
        let found = self.fed + ids.len();
        if found > self.limit {
            return Err(OracleError::Length { found, limit: self.limit });
        }
        let vocabulary = self.vocabulary;
        match ids.iter().position(|&id| id as usize >= vocabulary) {
            Some(i) => Err(OracleError::Token { token: ids[i], position: self.fed + i, vocabulary }),
            None => Ok(()),
        }
    }

    fn forward(&mut self, ids: &[u32]) -> candle_core::Result<Vec<f32>> {
        let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        let logits = self.network.forward(&ids, self.fed)?;
        self.fed += ids.elem_count();
        logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
    }
}

impl Entry {
    fn open(
        &self,
        checkpoint: &Checkpoint,
        positions: usize,
        choice: Choice,
    ) -> Result<(Box<dyn Network>, Source)> {
        let tensors = reader::builder(checkpoint, self.names);
        let mut lacks = (choice == Choice::Best).then_some("this architecture");
        if let Some(ready) = self.ready.as_ref().filter(|_| choice == Choice::Best) {
            let settings = (ready.settings)(&checkpoint.config, positions)?;
            lacks = (ready.lacks)(&settings)?;
            if lacks.is_none() {
                return Ok(((ready.open)(&settings, &tensors)?, Source::CandleTransformers));
            }
        }
        Ok(((self.plain)(&checkpoint.config, positions, &tensors)?, Source::Plain(lacks)))
    }
}

impl Oracle for Reference {
    fn feed(&mut self, ids: &[u32]) -> std::result::Result<Vec<f32>, OracleError> {
        self.check(ids)?;
        let at_once = if self.fed == 0 { ids.len() } else { 1 };
        let mut logits = Vec::new();
        for part in ids.chunks(at_once) {
            let architecture = self.architecture;
            logits = self.forward(part).map_err(|error| OracleError::computation(architecture, &error))?;
        }
        Ok(logits)
    }

    fn reset(&mut self) {
        self.network.clear();
        self.fed = 0;
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn describe(&self) -> String {
        let name = self.architecture;
        match self.source {
            Source::CandleTransformers => format!("{name} of candle-transformers at f32"),
            Source::Plain(None) => format!("plain {name} on candle at f32"),
            Source::Plain(Some(lacks)) => {
                format!("plain {name} on candle at f32 (candle-transformers lacks {lacks})")
            }
        }
    }
}
