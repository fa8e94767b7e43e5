//! Independent references: each checkpoint at f32 in its textbook form on candle.
//!
//! From the exporter's code they take the mapped bytes of the files, the name of the architecture, the names of
//! the tensors, the check that each is there in its shape, and typed access to JSON keys. Configurations, weights
//! in every format and layout, rotations, masks and layers are read and computed anew. A reference of what a bundle
//! stores takes the values of compressed weights from the packages, and nothing else.

mod error;
mod folds;
mod network;
mod reader;
mod rotation;
mod settings;
mod stored;
mod textbook;
mod trace;
mod turned;
mod weights;

use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;

use anemeter_convert::checkpoint::{Checkpoint, Config};
use anemeter_convert::model;
use anemeter_harness::verify::{Misstored, Oracle, OracleError, StoredWeights};
use error::Result;
use network::Network;
use reader::{GPT2, LLAMA, Names};
use stored::{Overlay, OverlayRecord};
use turned::Turned;

pub use textbook::encoder::open_encoder;
pub use trace::trace;

/// The reference of an architecture.
struct Entry {
    name: &'static str,
    names: Names,
    open: fn(&Config, usize, &VarBuilder<'_>) -> Result<Box<dyn Network>>,
}

const ENTRIES: &[Entry] = &[
    Entry { name: "llama", names: LLAMA, open: textbook::llama::open },
    Entry { name: "mistral", names: LLAMA, open: textbook::mistral::open },
    Entry { name: "qwen2", names: LLAMA, open: textbook::qwen2::open },
    Entry { name: "qwen3", names: LLAMA, open: textbook::qwen3::open },
    Entry { name: "gemma3", names: LLAMA, open: textbook::gemma3::open },
    Entry { name: "phi3", names: LLAMA, open: textbook::phi3::open },
    Entry { name: "gpt2", names: GPT2, open: textbook::gpt2::open },
    Entry { name: "pagating", names: GPT2, open: textbook::pagating::open },
    Entry { name: "student", names: LLAMA, open: textbook::llama::open },
    Entry { name: "smollm3", names: LLAMA, open: textbook::smollm3::open },
    Entry { name: "granite", names: LLAMA, open: textbook::granite::open },
    Entry { name: "granite4", names: LLAMA, open: textbook::granite::open_4 },
    Entry { name: "olmo2", names: LLAMA, open: textbook::olmo::open_2 },
    Entry { name: "olmo3", names: LLAMA, open: textbook::olmo::open_3 },
    Entry { name: "gemma2", names: LLAMA, open: textbook::gemma2::open },
    Entry { name: "ministral", names: LLAMA, open: textbook::ministral::open },
    Entry { name: "ministral3", names: LLAMA, open: textbook::ministral::open_3 },
    Entry { name: "starcoder2", names: LLAMA, open: textbook::starcoder2::open },
    Entry { name: "stablelm", names: LLAMA, open: textbook::stablelm::open },
    Entry { name: "cohere2", names: LLAMA, open: textbook::cohere2::open },
    Entry { name: "glm", names: LLAMA, open: textbook::glm::open },
    Entry { name: "glm4", names: LLAMA, open: textbook::glm::open_4 },
    Entry { name: "ernie4_5", names: LLAMA, open: textbook::ernie4_5::open },
    Entry { name: "minicpm", names: LLAMA, open: textbook::minicpm::open },
    Entry { name: "gemma4", names: LLAMA, open: textbook::gemma4::open },
    Entry { name: "lfm2", names: LLAMA, open: textbook::lfm2::open },
    Entry { name: "qwen3_5", names: LLAMA, open: textbook::qwen3_5::open },
];

/// Opens the reference of a checkpoint for sequences of up to `positions` tokens. All weights are held as f32.
pub fn open(checkpoint: &Checkpoint, positions: usize) -> std::result::Result<Box<dyn Oracle>, OracleError> {
    Ok(Box::new(Reference::open(checkpoint, positions, None)?.0))
}

/// The reference of a checkpoint with the weights as a bundle stores them.
pub struct StoredReference {
    /// What computes.
    pub oracle: Box<dyn Oracle>,
    /// Weights that are further from the checkpoint's than their compression explains.
    pub misstored: Vec<Misstored>,
    /// Compressed weights that the reference has no place for; with any, it does not compute what the bundle stores.
    pub unplaced: Vec<String>,
}

/// Opens the reference of a checkpoint with the compressed weights of a bundle in place of the checkpoint's.
pub fn open_stored(
    checkpoint: &Checkpoint,
    weights: &StoredWeights,
    positions: usize,
) -> std::result::Result<StoredReference, OracleError> {
    let (reference, record) = Reference::open(checkpoint, positions, Some(weights))?;
    let unplaced = weights.others(&record.names).map(str::to_owned).collect();
    Ok(StoredReference { oracle: Box::new(reference), misstored: record.misstored, unplaced })
}

struct Reference {
    network: Box<dyn Network>,
    architecture: &'static str,
    /// Whether compressed weights are those of a bundle.
    is_stored: bool,
    /// Tokens so far.
    fed: Vec<u32>,
    limit: usize,
}

impl Reference {
    fn open(
        checkpoint: &Checkpoint,
        positions: usize,
        weights: Option<&StoredWeights>,
    ) -> std::result::Result<(Reference, OverlayRecord), OracleError> {
        let architecture = model::build(checkpoint)?.architecture;
        let unknown = || OracleError::Computation { architecture, message: "there is none".to_owned() };
        let entry = ENTRIES.iter().find(|entry| entry.name == architecture).ok_or_else(unknown)?;
        let stored = weights.filter(|weights| !weights.is_empty());
        let record = Mutex::new(OverlayRecord::default());
        let open = || {
            let (weights, config) = weights::open(checkpoint)?;
            let folds = folds::of(architecture, &config)?;
            let overlay = match stored {
                Some(weights) => {
                    let turned = Turned::of(weights.rotated(), architecture, &config);
                    Some(Overlay { weights, record: &record, folds, turned, added: Mutex::default() })
                }
                None => None,
            };
            (entry.open)(&config, positions, &reader::builder(checkpoint, weights, entry.names, overlay))
        };
        let network = open().map_err(|problem| problem.of(architecture))?;
        let reference = Reference {
            network,
            architecture,
            is_stored: stored.is_some(),
            fed: Vec::new(),
            limit: positions,
        };
        Ok((reference, record.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    fn check(&self, ids: &[u32]) -> std::result::Result<(), OracleError> {
        if ids.is_empty() {
            return Err(OracleError::NoTokens);
        }
        let found = self.fed.len() + ids.len();
        if found > self.limit {
            return Err(OracleError::Length { found, limit: self.limit });
        }
        let vocabulary = self.network.vocabulary();
        match ids.iter().position(|&id| id as usize >= vocabulary) {
            Some(i) => Err(OracleError::Token { token: ids[i], position: self.fed.len() + i, vocabulary }),
            None => Ok(()),
        }
    }

    /// Feeds tokens at once; all of them anew where the sequence becomes longer than a boundary of the network.
    fn forward(&mut self, ids: &[u32]) -> candle_core::Result<Vec<f32>> {
        let mut offset = self.fed.len();
        self.fed.extend_from_slice(ids);
        let crosses = |boundary: usize| (offset..self.fed.len()).contains(&boundary);
        if self.network.boundary().is_some_and(crosses) {
            self.network.clear();
            offset = 0;
        }
        let ids = Tensor::new(&self.fed[offset..], &Device::Cpu)?.unsqueeze(0)?;
        let logits = self.network.forward(&ids, offset)?;
        logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
    }
}

impl Oracle for Reference {
    fn feed(&mut self, ids: &[u32]) -> std::result::Result<Vec<f32>, OracleError> {
        self.check(ids)?;
        let at_once = if self.fed.is_empty() { ids.len() } else { 1 };
        let mut logits = Vec::new();
        for part in ids.chunks(at_once) {
            let architecture = self.architecture;
            logits = self.forward(part).map_err(|error| error::computation(architecture, &error))?;
        }
        Ok(logits)
    }

    fn reset(&mut self) {
        self.network.clear();
        self.fed.clear();
    }

    fn vocabulary(&self) -> usize {
        self.network.vocabulary()
    }

    fn describe(&self) -> String {
        let weights = if self.is_stored { ", weights as stored" } else { "" };
        format!("{} (textbook, candle-core, f32{weights})", self.architecture)
    }
}
