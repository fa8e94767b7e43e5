//! What can go wrong while text is generated.

use std::path::PathBuf;

use anemeter_base::advice::{Advice, Remedy};
use anemeter_convert::bundle::BundleError;
use anemeter_mil::package::PackageError;
use anemeter_runtime::RuntimeError;

/// Why nothing, or no more, can be generated.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum GenerateError {
    /// A file of the bundle that cannot be used.
    #[error("{}: {problem}", .path.display())]
    File { path: PathBuf, problem: String },
    /// The chat template failed on these messages.
    #[error("chat template: {0}")]
    Template(String),
    /// What was asked for makes no sense for this bundle.
    #[error("{problem}")]
    Request { problem: String, remedy: Option<Remedy> },
    /// The model gave logits that nothing can be picked from.
    #[error("step {step}, sequence {sequence}: {problem}")]
    Logits {
        /// Tokens generated before.
        step: usize,
        sequence: usize,
        problem: String,
    },
    /// A bundle that is not complete.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A package that cannot be opened.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A prediction gave something else than it should.
    #[error("{chunk}: {problem}")]
    Output { chunk: String, problem: String },
    /// A prediction failed.
    #[error("{chunk}: {source}")]
    Runtime { chunk: String, source: RuntimeError },
}

pub(crate) type Result<T, E = GenerateError> = std::result::Result<T, E>;

impl GenerateError {
    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl Into<String>) -> GenerateError {
        GenerateError::File { path: path.into(), problem: problem.into() }
    }

    pub(crate) fn request(problem: impl Into<String>) -> GenerateError {
        GenerateError::Request { problem: problem.into(), remedy: None }
    }

    pub(crate) fn with_help(self, help: impl Into<Remedy>) -> GenerateError {
        match self {
            GenerateError::Request { problem, .. } => {
                GenerateError::Request { problem, remedy: Some(help.into()) }
            }
            other => other,
        }
    }
}

impl Advice for GenerateError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            GenerateError::Request { remedy, .. } => remedy.clone(),
            GenerateError::Bundle(error) => error.remedy(),
            GenerateError::Package(error) => error.remedy(),
            GenerateError::Runtime { source, .. } => source.remedy(),
            _ => None,
        }
    }

    fn is_environment(&self) -> bool {
        matches!(self, GenerateError::Runtime { source, .. } if source.is_environment())
    }
}
