//! What keeps a model from being lowered.

use anemeter_mil::{BuildError, ValueId};

/// A model or a set of options that has no program.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum LowerError {
    /// An option cannot be served.
    #[error("option `{option}`: {message}")]
    Option { option: &'static str, message: String },
    /// The model contradicts itself.
    #[error("lower `{at}`: {message}")]
    Model { at: String, message: String },
    /// A weight has another shape than the model implies.
    #[error("lower `{at}`: weight `{name}` is {found:?}, the model implies {expected:?}")]
    Weight { at: String, name: String, found: Vec<usize>, expected: Vec<usize> },
    /// An operation refused its arguments.
    #[error("lower function `{function}`: {source}")]
    Build { function: String, source: BuildError },
}

impl LowerError {
    pub(super) fn option(option: &'static str, message: impl Into<String>) -> LowerError {
        LowerError::Option { option, message: message.into() }
    }

    pub(super) fn model(at: &str, message: impl Into<String>) -> LowerError {
        LowerError::Model { at: at.to_owned(), message: message.into() }
    }
}

/// What a step of lowering gives: a value, unless it says otherwise.
pub(super) type Result<T = ValueId, E = LowerError> = std::result::Result<T, E>;
