//! What can be wrong with a bundle.

use std::io;
use std::path::Path;

use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::config::ConfigFileError;
use anemeter_coreai::AssetError;
use anemeter_mil::package::PackageError;

use crate::checkpoint::CheckpointError;

/// A bundle that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct BundleError {
    /// The file and what is wrong with it.
    message: String,
    remedy: Option<Remedy>,
}

/// Of a package that the bundle consists of.
impl From<PackageError> for BundleError {
    fn from(error: PackageError) -> BundleError {
        BundleError { message: error.to_string(), remedy: error.remedy() }
    }
}

/// Of a Core AI asset that the bundle consists of.
impl From<AssetError> for BundleError {
    fn from(error: AssetError) -> BundleError {
        BundleError { message: error.to_string(), remedy: error.remedy() }
    }
}

/// Of a tokenizer.
impl From<CheckpointError> for BundleError {
    fn from(error: CheckpointError) -> BundleError {
        BundleError { message: error.to_string(), remedy: error.remedy() }
    }
}

/// Of a contract file.
impl From<ConfigFileError> for BundleError {
    fn from(error: ConfigFileError) -> BundleError {
        BundleError { message: error.to_string(), remedy: error.remedy() }
    }
}

impl BundleError {
    /// Something about a file of a bundle.
    pub fn new(path: &Path, message: impl Into<String>) -> BundleError {
        BundleError { message: format!("{}: {}", path.display(), message.into()), remedy: None }
    }

    /// The same about a bundle that is known by another path: that of its final place, for one that was staged.
    #[must_use]
    pub fn moved(mut self, from: &Path, to: &Path) -> BundleError {
        self.message = self.message.replace(&*from.to_string_lossy(), &to.to_string_lossy());
        self
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<Remedy>) -> BundleError {
        self.remedy = Some(help.into());
        self
    }

    pub(super) fn unreadable(folder: &Path, manifest: &Path, error: &io::Error) -> BundleError {
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            let message = match () {
                () if folder.is_dir() => "has no export.json, so it is not a bundle",
                () if folder.exists() => "is neither a bundle nor a package, which are folders",
                () => "there is no such bundle or package",
            };
            return BundleError::new(folder, message).with_help(Remedy::ExportOrPackage);
        }
        BundleError::new(manifest, format!("cannot be read: {error}"))
    }
}

impl Advice for BundleError {
    fn remedy(&self) -> Option<Remedy> {
        self.remedy.clone()
    }
}
