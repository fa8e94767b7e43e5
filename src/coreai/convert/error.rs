//! Why a MIL program cannot be said in aicode.

use anemeter_base::advice::{Advice, Remedy};
use anemeter_kernels::tensor::TensorError;
use anemeter_mil::op::OpError;

/// A program that has no aicode form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// An operation that the table does not have.
    #[error("function `{function}`, {operation}: Core AI export has no form of the operation {kind}")]
    Unsupported {
        /// Name of the function.
        function: String,
        /// Its kind and first output.
        operation: String,
        /// The operation's kind.
        kind: String,
    },
    /// An operation that the table has, but not with these arguments.
    #[error("function `{function}`, {operation}: {message}")]
    Operation {
        /// Name of the function.
        function: String,
        /// Its kind and first output.
        operation: String,
        /// What is wrong with it.
        message: String,
    },
    /// An input, output or state that aicode cannot have.
    #[error("function `{function}`: {message}")]
    Interface {
        /// Name of the function.
        function: String,
        /// What is wrong with it.
        message: String,
    },
}

impl Advice for ConvertError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            ConvertError::Unsupported { .. } => Some(Remedy::Other(
                "export this model for Core ML only, or rewrite the operation with those that have a form in Core AI in \
                 docs/reference/ops.md"
                    .into(),
            )),
            ConvertError::Operation { .. } | ConvertError::Interface { .. } => None,
        }
    }
}

/// What an emitter refuses, without its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

/// The result of an emitter.
pub(super) type Result<T> = std::result::Result<T, Refusal>;

impl From<OpError> for Refusal {
    fn from(error: OpError) -> Refusal {
        Refusal(error.to_string())
    }
}

impl From<TensorError> for Refusal {
    fn from(error: TensorError) -> Refusal {
        Refusal(error.to_string())
    }
}

/// Ends an emitter with the reason why it cannot go on.
macro_rules! refuse {
    ($($reason:tt)*) => {
        return Err(crate::convert::error::Refusal(format!($($reason)*)))
    };
}
pub(super) use refuse;
