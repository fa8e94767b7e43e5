//! What keeps a model from being lowered.

use crate::mil::BuildError;

/// A model or a set of options that has no program.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LowerError {
    /// An option cannot be served.
    #[error("option `{option}`: {message}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was found and what is possible.
        message: String,
    },
    /// The model contradicts itself.
    #[error("lower `{at}`: {message}")]
    Model {
        /// The part of the model.
        at: String,
        /// What was found and what was expected.
        message: String,
    },
    /// A weight has another shape than the model implies.
    #[error("lower `{at}`: weight `{name}` is {found:?}, the model implies {expected:?}")]
    Weight {
        /// The part of the model.
        at: String,
        /// The weight's name in the checkpoint.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that fits.
        expected: Vec<usize>,
    },
    /// An operation refused its arguments.
    #[error("lower function `{function}`: {source}")]
    Build {
        /// The function.
        function: String,
        /// The refusal.
        source: BuildError,
    },
}

impl LowerError {
    pub(super) fn option(option: &'static str, message: impl Into<String>) -> LowerError {
        LowerError::Option { option, message: message.into() }
    }

    pub(super) fn model(at: &str, message: impl Into<String>) -> LowerError {
        LowerError::Model { at: at.to_owned(), message: message.into() }
    }
}

pub(super) type Result<T> = std::result::Result<T, LowerError>;
