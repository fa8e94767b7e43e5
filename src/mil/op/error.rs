//! The error of a type rule or an evaluation. It names the parameter and the numbers; whoever runs the
//! operation adds where in the program it happened.

use crate::tensor::TensorError;

/// Why an operation cannot be typed or evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpError(String);

impl OpError {
    /// An error with the given text: lower case, with names and numbers, no full stop.
    pub fn new(text: impl Into<String>) -> OpError {
        OpError(text.into())
    }
}

impl From<TensorError> for OpError {
    fn from(error: TensorError) -> OpError {
        OpError(error.to_string())
    }
}
