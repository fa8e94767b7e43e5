//! What can go wrong in an export.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::advice::{Advice, Remedy};
use crate::bundle::BundleError;
use crate::checkpoint::CheckpointError;
use crate::compress::{CompressError, Precision};
use crate::config::ConfigFileError;
use crate::coreai::AssetError;
use crate::coreai::convert::ConvertError;
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
    /// The program has no Core AI form.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// The Core AI asset cannot be written.
    #[error(transparent)]
    Asset(#[from] AssetError),
    /// The finished bundle cannot be opened.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A configuration file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    /// The precision loses too much without data.
    #[error(
        "option `precision`: `{0}` without data makes models of little use, so the bare word is not exported without it"
    )]
    NeedsData(Precision),
    /// A sequence length was not trained.
    #[error("sequence length {seq_len} was not trained: the training configuration has {trained:?}")]
    Untrained {
        /// The length to export.
        seq_len: usize,
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
    /// The bundle is to be where that is which it is made from.
    #[error("{}: {how}", path.display())]
    Overlap {
        /// Where the bundle is to be.
        path: PathBuf,
        /// Where that is, seen from what the bundle is made from.
        how: String,
    },
    /// Something is where the bundle is to be.
    #[error("{}: {what}, so it is not replaced", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
        /// What is there.
        what: Occupant,
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

/// What is where a bundle is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupant {
    /// Another bundle.
    Bundle,
    /// In the folder of a bundle, something that no export wrote.
    Foreign,
    /// No bundle.
    Other,
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Occupant::Bundle => "holds a bundle already",
            Occupant::Foreign => "is not from an export",
            Occupant::Other => "holds something else",
        })
    }
}

impl ExportError {
    pub(crate) fn io(path: &Path, error: &io::Error) -> ExportError {
        ExportError::Io { path: path.to_owned(), source: io::Error::new(error.kind(), error.to_string()) }
    }

    /// The same about the place that a bundle is to have, not about the one where it is staged and which is gone.
    #[must_use]
    pub(crate) fn moved(self, from: &Path, to: &Path) -> ExportError {
        match self {
            ExportError::Package(error) => ExportError::Package(error.moved(from, to)),
            ExportError::Asset(error) => ExportError::Asset(error.moved(from, to)),
            ExportError::Bundle(error) => ExportError::Bundle(error.moved(from, to)),
            ExportError::Io { path, source } => {
                let path = path.strip_prefix(from).map(|rest| to.join(rest)).unwrap_or(path);
                ExportError::Io { path, source }
            }
            error => error,
        }
    }

    /// A file that cannot be read.
    pub fn unreadable(path: &Path, error: &io::Error) -> ExportError {
        ExportError::Unreadable { path: path.to_owned(), why: error.to_string() }
    }

    /// An option that makes no sense.
    pub fn option(option: &'static str, message: impl Into<String>) -> ExportError {
        ExportError::Option { option, message: message.into() }
    }
}

impl Advice for ExportError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            ExportError::Checkpoint(error) => error.remedy(),
            ExportError::Model(error) => error.remedy(),
            ExportError::Package(error) => error.remedy(),
            ExportError::Convert(error) => error.remedy(),
            ExportError::Asset(error) => error.remedy(),
            ExportError::Bundle(error) => error.remedy(),
            ExportError::Config(error) => error.remedy(),
            ExportError::Compress(error) => error.remedy(),
            ExportError::Unmatched(_) => Some(Remedy::ListWeights),
            ExportError::NeedsData(precision) => Some(Remedy::Calibrate {
                instead: format!(
                    "use int4, lut6 or int8, write `{precision}:group=16` to have it without data all the same"
                ),
            }),
            ExportError::Untrained { .. } => Some(Remedy::TrainedSeqLens),
            ExportError::Exists { what, .. } => Some(match what {
                Occupant::Bundle => Remedy::Overwrite,
                Occupant::Foreign => "move it elsewhere, or choose another folder".into(),
                Occupant::Other => "choose a folder that is empty or does not exist".into(),
            }),
            _ => None,
        }
    }
}
