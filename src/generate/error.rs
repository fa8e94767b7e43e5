//! What can go wrong while text is generated.

use std::path::PathBuf;

use crate::package::PackageError;
use crate::runtime::RuntimeError;

/// Why nothing, or no more, can be generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A file of the bundle that cannot be used.
    #[error("{}: {problem}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The chat template failed on these messages.
    #[error("chat template: {0}")]
    Template(String),
    /// What was asked for makes no sense for this bundle.
    #[error("{problem}")]
    Request {
        /// What is wrong.
        problem: String,
        /// What to do about it.
        help: Option<String>,
    },
    /// The model gave logits that nothing can be picked from.
    #[error("step {step}, sequence {sequence}: {problem}")]
    Logits {
        /// Tokens generated before.
        step: usize,
        /// The sequence of the batch.
        sequence: usize,
        /// What was found.
        problem: String,
    },
    /// A package that cannot be opened.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A prediction gave something else than it should.
    #[error("{chunk}: {problem}")]
    Output {
        /// The package.
        chunk: String,
        /// What it gave.
        problem: String,
    },
    /// A prediction failed.
    #[error("{chunk}: {source}")]
    Runtime {
        /// The package it failed in.
        chunk: String,
        /// Why.
        source: RuntimeError,
    },
}

/// A result of this stage.
pub(crate) type Result<T> = std::result::Result<T, GenerateError>;

impl GenerateError {
    pub(super) fn file(path: impl Into<PathBuf>, problem: impl Into<String>) -> GenerateError {
        GenerateError::File { path: path.into(), problem: problem.into() }
    }

    pub(super) fn request(problem: impl Into<String>) -> GenerateError {
        GenerateError::Request { problem: problem.into(), help: None }
    }

    pub(super) fn with_help(self, help: impl Into<String>) -> GenerateError {
        match self {
            GenerateError::Request { problem, .. } => {
                GenerateError::Request { problem, help: Some(help.into()) }
            }
            other => other,
        }
    }

    /// What to do about it, if that is known.
    pub fn help(&self) -> Option<&str> {
        match self {
            GenerateError::Request { help, .. } => help.as_deref(),
            GenerateError::Package(error) => error.help(),
            GenerateError::Runtime { source, .. } => source.help(),
            _ => None,
        }
    }
}
