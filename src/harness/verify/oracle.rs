//! What a bundle is verified against: a model that gives logits for tokens, computed independently of the exporter.

use std::fmt;

use crate::encode::EncoderTokens;
use anemeter_convert::checkpoint::ConfigError;
use anemeter_convert::model::ModelError;
use serde::{Serialize, Serializer};

/// A model that gives logits for tokens, one sequence at a time.
pub trait Oracle {
    /// Feeds further tokens and gives the logits after the last of them.
    fn feed(&mut self, ids: &[u32]) -> Result<Vec<f32>, OracleError>;

    /// Forgets all tokens.
    fn reset(&mut self);

    /// Tokens in the vocabulary.
    fn vocabulary(&self) -> usize;

    /// What computes, in words.
    fn describe(&self) -> String;
}

/// An encoder that gives a vector, scores or hidden states for a text.
pub trait EncoderOracle {
    /// What it makes of a text: its vector or scores, or the hidden states of all tokens, token by token.
    fn encode(&self, tokens: &EncoderTokens) -> Result<Vec<f32>, OracleError>;

    /// Its hidden states, layer by layer.
    fn trace(&self, tokens: &EncoderTokens) -> Result<Trace, OracleError>;

    /// What computes, in words.
    fn describe(&self) -> String;
}

/// A place in a model where the residual stream can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Token vectors, before the first layer.
    Embedding,
    /// In a layer, after its attention is added.
    Attention(usize),
    /// After a layer.
    Layer(usize),
}

impl Point {
    /// The layer whose work shows here first; none before the first layer.
    pub fn layer(self) -> Option<usize> {
        match self {
            Point::Embedding => None,
            Point::Attention(layer) | Point::Layer(layer) => Some(layer),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Embedding => f.pad("embedding"),
            Point::Attention(layer) => f.pad(&format!("layer {layer} attention")),
            Point::Layer(layer) => f.pad(&format!("layer {layer}")),
        }
    }
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Hidden states of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// What computed them, in words.
    pub reference: String,
    /// Tokens.
    pub tokens: usize,
    /// Width of a hidden state.
    pub hidden: usize,
    /// The states of all tokens at each point, in order: `tokens * hidden` numbers, token by token.
    pub points: Vec<(Point, Vec<f32>)>,
}

impl Trace {
    /// Multiplies all states by a number.
    pub fn scale(&mut self, factor: f32) {
        self.points.iter_mut().flat_map(|(_, states)| states).for_each(|x| *x *= factor);
    }
}

/// Why a reference could not be opened or run.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// The checkpoint makes no model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A configuration key has a value that the reference cannot follow.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A token that the vocabulary does not have.
    #[error("token {token} at position {position} is outside the vocabulary of {vocabulary}")]
    Token {
        /// The token.
        token: u32,
        /// Its position.
        position: usize,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// More tokens than the reference was opened for.
    #[error("{found} tokens are more than the {limit} that the reference was opened for")]
    Length {
        /// Tokens so far, with the new ones.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// Nothing to compute.
    #[error("the reference was given no tokens")]
    NoTokens,
    /// The computation failed.
    #[error("reference of {architecture}: {message}")]
    Computation {
        /// The architecture.
        architecture: &'static str,
        /// What failed.
        message: String,
    },
}
