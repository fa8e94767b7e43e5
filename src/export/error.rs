//! What can go wrong in an export.

use std::io;
use std::path::{Path, PathBuf};

use crate::bundle::BundleError;
use crate::checkpoint::CheckpointError;
use crate::compress::CompressError;
use crate::config::ConfigFileError;
use crate::lower::LowerError;
use crate::mil::verify::Faults;
use crate::model::ModelError;
use crate::package::PackageError;

/// An export that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The checkpoint is not a model that is known here.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model has no program with these options.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The weights cannot be compressed as asked.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// A rule of the precision names no weight.
    #[error("the precision rule `{0}` matches no weight")]
    Unmatched(String),
    /// The program does not hold together.
    #[error("the exported program is not valid, which is a fault of this program: {0}")]
    Faults(#[from] Faults),
    /// The package cannot be written.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The finished bundle cannot be opened.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A configuration file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    /// A shape was not trained.
    #[error("shape {shape} was not trained: the training configuration has {trained:?}")]
    Untrained {
        /// The shape to export.
        shape: usize,
        /// Lengths of the training.
        trained: Vec<usize>,
    },
    /// An option makes no sense.
    #[error("option `{option}`: {message}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was found and what is possible.
        message: String,
    },
    /// Something is where the bundle is to be.
    #[error("{}: {what}, so it is not replaced", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// A file cannot be read.
    #[error("{}: cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ExportError {
    pub(super) fn io(path: &Path, error: &io::Error) -> ExportError {
        ExportError::Io { path: path.to_owned(), source: io::Error::new(error.kind(), error.to_string()) }
    }

    /// A file that cannot be read.
    pub fn unreadable(path: &Path, error: &io::Error) -> ExportError {
        ExportError::Unreadable { path: path.to_owned(), why: error.to_string() }
    }

    /// An option that makes no sense.
    pub fn option(option: &'static str, message: impl Into<String>) -> ExportError {
        ExportError::Option { option, message: message.into() }
    }

    /// What to do about it.
    pub fn help(&self) -> Option<&str> {
        match self {
            ExportError::Checkpoint(error) => error.help(),
            ExportError::Package(error) => error.help(),
            ExportError::Bundle(error) => error.help(),
            ExportError::Config(error) => error.help(),
            ExportError::Compress(error) => error.help(),
            ExportError::Unmatched(_) => Some("`anemeter inspect --weights` shows the names of weights"),
            ExportError::Untrained { .. } => {
                Some("export only trained lengths with --shapes, or train the missing one")
            }
            ExportError::Exists { what, .. } if what.contains("bundle") => {
                Some("choose another folder, or replace it with --overwrite")
            }
            ExportError::Exists { .. } => Some("choose a folder that is empty or does not exist"),
            _ => None,
        }
    }
}
