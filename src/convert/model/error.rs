//! Why a checkpoint does not make a model.

use std::fmt;
use std::path::PathBuf;

use super::arch::Structure;
use crate::checkpoint::ConfigError;
use anemeter_base::advice::{Advice, Remedy};
use anemeter_kernels::tensor::Shape;

/// Why a checkpoint does not make a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A configuration key is missing or has a value that makes no model.
    #[error("{}: {problem}", path.display())]
    Config {
        /// Path of the checkpoint.
        path: PathBuf,
        /// The key and what is wrong with it.
        problem: ConfigError,
    },
    /// The configuration names no known architecture.
    #[error(
        "{}: architecture {found} is not known: {structure}; known are {}", path.display(), known.join(", ")
    )]
    UnknownArchitecture {
        /// Path of the checkpoint.
        path: PathBuf,
        /// What its configuration says.
        found: String,
        /// What kind of model it is.
        structure: Structure,
        /// Architectures that this version converts.
        known: Vec<&'static str>,
    },
    /// The configuration is of a mixture of experts.
    #[error(
        "{}: architecture {found} is a mixture of experts: a router chooses other weights for every token, and gathers \
         of weights leave the Neural Engine", path.display()
    )]
    Experts {
        /// Path of the checkpoint.
        path: PathBuf,
        /// What its configuration says.
        found: String,
        /// The architecture of its dense relatives, if this version converts them.
        dense: Option<&'static str>,
    },
    /// The model is known, and parts of it are not exported.
    #[error("{}: architecture {found} is not exported: {reason}", path.display())]
    Refused {
        /// Path of the checkpoint.
        path: PathBuf,
        /// What its configuration says.
        found: String,
        /// Why.
        reason: &'static str,
        /// What to take instead.
        instead: &'static str,
    },
    /// It is an encoder where a decoder is needed.
    #[error("{}: is a {architecture} encoder, which generates no text", path.display())]
    Encoder {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Its architecture.
        architecture: &'static str,
    },
    /// The tensors are not those that the configuration implies.
    #[error("{}: tensors do not make up the {architecture} model of its configuration{}", path.display(), Lines(problems))]
    Tensors {
        /// Path of the checkpoint.
        path: PathBuf,
        /// The architecture that its configuration names.
        architecture: &'static str,
        /// Everything that is wrong.
        problems: Vec<TensorProblem>,
    },
}

impl Advice for ModelError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            ModelError::UnknownArchitecture { .. } => Some(
                "convert it with coremltools, and inspect, lint and run that package here; \
                 docs/guides/add-an-architecture.md shows how to add a decoder"
                    .into(),
            ),
            ModelError::Experts { dense, .. } => {
                let dense = dense.map_or_else(
                    || "a dense model of about as many active parameters".to_owned(),
                    |dense| format!("a dense model of the family ({dense})"),
                );
                Some(format!("export {dense}, or run this one on the GPU, with MLX or llama.cpp").into())
            }
            ModelError::Refused { instead, .. } => Some((*instead).into()),
            ModelError::Config { .. } | ModelError::Tensors { .. } | ModelError::Encoder { .. } => None,
        }
    }
}

/// What is wrong with one tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorProblem {
    /// It is not there.
    #[error("`{tensor}` is missing, expected {expected}")]
    Missing {
        /// Its name.
        tensor: String,
        /// The shape it should have.
        expected: Expected,
    },
    /// It has another shape.
    #[error("`{tensor}` is {found:?}, expected {expected}")]
    Misshapen {
        /// Its name.
        tensor: String,
        /// The shape it should have.
        expected: Expected,
        /// The shape it has.
        found: Shape,
    },
    /// The model has no use for it.
    #[error("`{tensor}` {found:?} is not part of the model")]
    Unused {
        /// Its name.
        tensor: String,
        /// Its shape in the checkpoint.
        found: Shape,
    },
    /// Its content contradicts the configuration or makes no sense.
    #[error("`{tensor}` {problem}")]
    Content {
        /// Its name.
        tensor: String,
        /// What is wrong.
        problem: String,
    },
}

/// A shape with the configuration keys it was computed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The shape.
    pub shape: Shape,
    /// For each dimension, an expression over configuration keys.
    pub from: Vec<String>,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shape)?;
        if self.from.is_empty() { Ok(()) } else { write!(f, " from [{}]", self.from.join(", ")) }
    }
}

struct Lines<'a>(&'a [TensorProblem]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}
