//! What can be wrong with a bundle.

use std::io;
use std::path::{Path, PathBuf};

/// A bundle that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct BundleError {
    path: PathBuf,
    message: String,
    help: Option<String>,
}

impl BundleError {
    pub(super) fn new(path: &Path, message: impl Into<String>) -> BundleError {
        BundleError { path: path.to_owned(), message: message.into(), help: None }
    }

    pub(super) fn with_help(mut self, help: impl Into<String>) -> BundleError {
        self.help = Some(help.into());
        self
    }

    pub(super) fn unreadable(folder: &Path, manifest: &Path, error: &io::Error) -> BundleError {
        if error.kind() == io::ErrorKind::NotFound {
            let message = match folder.is_dir() {
                true => "has no export.json, so it is not a bundle",
                false => "is not a folder; a bundle is what `anemeter export` writes",
            };
            let error = BundleError::new(folder, message);
            return match folder.extension().is_some_and(|extension| extension == "mlpackage") {
                true => error.with_help("give the folder that the package is in"),
                false => error.with_help("make one with `anemeter export CHECKPOINT -o DIR`"),
            };
        }
        BundleError::new(manifest, format!("cannot be read: {error}"))
    }

    /// What to do about it.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }
}
