//! References of encoders: hidden states by a textbook network, then what sentence-transformers or a classifier makes of
//! them. One text at a time, so that there is no padding here.

mod bert;
mod classifier;
mod embedding_gemma;
mod modernbert;
mod modules;
mod network;
mod roberta;

use std::cell::RefCell;

use candle_core::{Device, Tensor};
use candle_nn::VarBuilder;

use crate::ENTRIES;
use crate::error::{Result, computation};
use crate::network::{Network, Watch};
use crate::reader::{self, Names};
use crate::weights;
use anemeter_convert::checkpoint::{Checkpoint, Config};
use anemeter_convert::model::{self, ModelGraph};
use anemeter_harness::encode::EncoderTokens;
use anemeter_harness::verify::{EncoderOracle, OracleError, Trace};
use modules::Readout;

/// Gives the hidden states of a text.
trait EncoderNetwork {
    /// `[tokens, hidden]` after the last norm; those on the way are passed to `watch`.
    fn hidden_states(&self, tokens: &EncoderTokens, watch: Watch<'_>) -> candle_core::Result<Tensor>;
}

/// The reference of an architecture.
struct Entry {
    name: &'static str,
    names: Names,
    open: fn(&Config, usize, &VarBuilder<'_>) -> Result<Box<dyn EncoderNetwork>>,
}

const ENCODERS: &[Entry] = &[
    Entry { name: "bert", names: bert::NAMES, open: bert::open },
    Entry { name: "roberta", names: roberta::NAMES, open: roberta::open },
    Entry { name: "modernbert", names: modernbert::NAMES, open: modernbert::open },
    Entry { name: "embedding-gemma", names: reader::LLAMA, open: embedding_gemma::open },
];

/// Opens the reference of an encoder for texts of up to `positions` tokens.
pub fn open_encoder(
    checkpoint: &Checkpoint,
    positions: usize,
) -> std::result::Result<Box<dyn EncoderOracle>, OracleError> {
    let architecture = match model::build_any(checkpoint)? {
        ModelGraph::Encoder(encoder) => encoder.architecture,
        ModelGraph::Decoder(decoder) => {
            let message = "it is no encoder".to_owned();
            return Err(OracleError::Computation { architecture: decoder.architecture, message });
        }
    };
    let opened = open(checkpoint, positions, architecture).map_err(|problem| problem.of(architecture))?;
    let Some((network, readout)) = opened else {
        let message = "there is none".to_owned();
        return Err(OracleError::Computation { architecture, message });
    };
    Ok(Box::new(Reference { network, readout, architecture }))
}

type Opened = (Box<dyn EncoderNetwork>, Option<Readout>);

fn open(checkpoint: &Checkpoint, positions: usize, architecture: &str) -> Result<Option<Opened>> {
    let (weights, config) = weights::open(checkpoint)?;
    if let Some(entry) = ENCODERS.iter().find(|entry| entry.name == architecture) {
        let tensors = reader::builder(checkpoint, weights, entry.names, None);
        let network = (entry.open)(&config, positions, &tensors)?;
        let readout = match classifier::of(&config, architecture, &tensors)? {
            Some(classifier) => Some(classifier),
            None => modules::read(&checkpoint.path)?,
        };
        return Ok(Some((network, readout)));
    }
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == architecture) else { return Ok(None) };
    let tensors = reader::builder(checkpoint, weights, entry.names, None);
    let network = Causal(RefCell::new((entry.open)(&config, positions, &tensors)?));
    Ok(Some((Box::new(network), modules::read(&checkpoint.path)?)))
}

/// A decoder whose logits nobody asks for.
struct Causal(RefCell<Box<dyn Network>>);

impl EncoderNetwork for Causal {
    fn hidden_states(&self, tokens: &EncoderTokens, watch: Watch<'_>) -> candle_core::Result<Tensor> {
        let mut network = self.0.borrow_mut();
        network.clear();
        network.hidden_states(&Tensor::new(&tokens.ids[..], &Device::Cpu)?.unsqueeze(0)?, watch)
    }
}

struct Reference {
    network: Box<dyn EncoderNetwork>,
    readout: Option<Readout>,
    architecture: &'static str,
}

impl Reference {
    fn states(&self, tokens: &EncoderTokens, watch: Watch<'_>) -> std::result::Result<Tensor, OracleError> {
        if tokens.ids.is_empty() {
            return Err(OracleError::NoTokens);
        }
        let states = self.network.hidden_states(tokens, watch);
        states.map_err(|error| computation(self.architecture, &error))
    }
}

impl EncoderOracle for Reference {
    fn encode(&self, tokens: &EncoderTokens) -> std::result::Result<Vec<f32>, OracleError> {
        let states = self.states(tokens, &mut |_, _| Ok(()))?;
        let read = || match &self.readout {
            Some(readout) => readout.forward(&states)?.flatten_all()?.to_vec1(),
            None => states.flatten_all()?.to_vec1(),
        };
        read().map_err(|error| computation(self.architecture, &error))
    }

    fn trace(&self, tokens: &EncoderTokens) -> std::result::Result<Trace, OracleError> {
        let mut points = Vec::new();
        self.states(tokens, &mut |point, states| {
            points.push((point, states.flatten_all()?.to_vec1()?));
            Ok(())
        })?;
        let count = tokens.ids.len();
        let hidden = points.first().map_or(0, |(_, values): &(_, Vec<f32>)| values.len() / count);
        Ok(Trace { reference: self.describe(), tokens: count, hidden, points })
    }

    fn describe(&self) -> String {
        format!("{} (textbook, candle-core, f32)", self.architecture)
    }
}
