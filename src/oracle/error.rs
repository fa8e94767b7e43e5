//! Why a reference could not be opened or run.

use crate::checkpoint::ConfigError;
use crate::model::ModelError;

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

impl OracleError {
    /// The first line of what candle says: with backtraces on, it says them too.
    pub(super) fn computation(architecture: &'static str, error: &candle_core::Error) -> OracleError {
        let message = error.to_string().lines().next().unwrap_or_default().to_owned();
        OracleError::Computation { architecture, message }
    }
}

/// What can go wrong inside a reference.
#[derive(Debug)]
pub(super) enum Problem {
    Config(ConfigError),
    Candle(candle_core::Error),
}

/// Result of the parts of a reference.
pub(super) type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    pub(super) fn of(self, architecture: &'static str) -> OracleError {
        match self {
            Problem::Config(error) => OracleError::Config(error),
            Problem::Candle(error) => OracleError::computation(architecture, &error),
        }
    }
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Problem {
        Problem::Config(error)
    }
}

impl From<candle_core::Error> for Problem {
    fn from(error: candle_core::Error) -> Problem {
        Problem::Candle(error)
    }
}
