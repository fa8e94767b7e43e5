//! Why a text cannot be taken through a checkpoint.

use std::io;

use crate::compress::CompressError;

/// A pass over a checkpoint that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// There is no token.
    #[error("there are no tokens")]
    NoTokens,
    /// A token that the model does not have.
    #[error("token {token} is beyond the vocabulary of {vocabulary}")]
    Token {
        /// The token.
        token: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// A token whose embedding is no vector of numbers.
    #[error("the embedding of token {token} has an element that is {value} in the checkpoint")]
    Embedding {
        /// The token.
        token: u32,
        /// What the element is.
        value: f32,
    },
    /// A sequence beyond the learned positions.
    #[error("a sequence of {found} tokens is longer than the {most} positions of the model")]
    Length {
        /// Its tokens.
        found: usize,
        /// Positions of the model.
        most: usize,
    },
    /// Keys and values of a layer are those of one that was not computed before it.
    #[error("layer {layer} sees keys and values of layer {source_layer}, which does not come before it")]
    Shared {
        /// The layer.
        layer: usize,
        /// The one that it names.
        source_layer: usize,
    },
    /// A layer without attention.
    #[error("layer {layer} has a convolution or a delta rule, which calibration does not compute yet")]
    Mixer {
        /// Its index.
        layer: usize,
    },
    /// A weight has no codes.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// Codes cannot be kept.
    #[error("codes cannot be written: {0}")]
    Io(#[from] io::Error),
}
