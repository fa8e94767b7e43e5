//! The error of a type rule or an evaluation. It names the parameter and the numbers; whoever runs the
//! operation adds where in the program it happened.

use anemeter_kernels::tensor::TensorError;

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

/// What a type rule or an evaluation gives, or why it cannot.
pub type Result<T = (), E = OpError> = std::result::Result<T, E>;

/// An [`OpError`] of formatted text.
macro_rules! op_error {
    ($($text:tt)+) => { $crate::op::OpError::new(format!($($text)+)) };
}

/// Returns an [`OpError`] of formatted text.
macro_rules! refuse {
    ($($text:tt)+) => { return Err(op_error!($($text)+)) };
}

/// Returns an [`OpError`] of formatted text where a condition holds.
macro_rules! refuse_if {
    ($condition:expr, $($text:tt)+) => { if $condition { refuse!($($text)+) } };
}

/// Returns where a condition leaves nothing to do.
macro_rules! done_if {
    ($condition:expr) => {
        if $condition {
            return Ok(());
        }
    };
}

impl From<TensorError> for OpError {
    fn from(error: TensorError) -> OpError {
        OpError(error.to_string())
    }
}
