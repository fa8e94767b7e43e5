//! Why a comparison could not be made.

use crate::generate::GenerateError;
use crate::verify::OracleError;
use anemeter_base::vocabulary::KvForm;

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The reference failed.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// A text could not be scored.
    #[error(transparent)]
    Text(#[from] GenerateError),
    /// The package failed.
    #[error("{kv} at length {seq_len}: {message}")]
    Candidate {
        /// The cache form.
        kv: KvForm,
        /// The length.
        seq_len: usize,
        /// What failed.
        message: String,
    },
    /// The package gave something else than logits of every position.
    #[error("{kv} at length {seq_len} gave {found} for {expected}")]
    Output {
        /// The cache form.
        kv: KvForm,
        /// The length.
        seq_len: usize,
        /// What was given.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The package was not exported for a length.
    #[error("the form `{kv}` has no length {length}, but {known}")]
    NoLength {
        /// The cache form.
        kv: KvForm,
        /// The length asked for.
        length: usize,
        /// The lengths there are.
        known: String,
    },
    /// Two packages cannot be compared.
    #[error("{0}")]
    Packages(String),
    /// There is nothing to compare.
    #[error("there is nothing to compare: {0}")]
    Nothing(&'static str),
}
