//! Why a comparison could not be made.

use crate::bundle::KvForm;
use crate::oracle::OracleError;

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The reference failed.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The package failed.
    #[error("{kv} at length {shape}: {message}")]
    Candidate {
        /// The cache form.
        kv: KvForm,
        /// The length.
        shape: usize,
        /// What failed.
        message: String,
    },
    /// The package gave something else than logits of every position.
    #[error("{kv} at length {shape} gave {found} for {expected}")]
    Output {
        /// The cache form.
        kv: KvForm,
        /// The length.
        shape: usize,
        /// What was given.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// There is nothing to compare.
    #[error("there is nothing to compare: {0}")]
    Nothing(&'static str),
}
