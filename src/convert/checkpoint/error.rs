//! The one error of reading checkpoints: what was found, in which file and tensor, and what helps.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::ConfigError;
use anemeter_base::advice::{Advice, Remedy};
pub(super) use anemeter_base::text::quoted;
use anemeter_base::text::visible;
use anemeter_base::zip::ZipError;

pub(super) type Result<T> = std::result::Result<T, CheckpointError>;

/// Why a checkpoint could not be read.
#[derive(Debug)]
pub struct CheckpointError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    message: String,
    file: Option<PathBuf>,
    tensor: Option<String>,
    remedy: Option<Remedy>,
}

impl CheckpointError {
    pub(super) fn new(message: impl Into<String>) -> CheckpointError {
        CheckpointError(Box::new(Inner { message: message.into(), file: None, tensor: None, remedy: None }))
    }

    pub(super) fn io(path: &Path, doing: &str, error: &io::Error) -> CheckpointError {
        let message = match error.kind() {
            io::ErrorKind::NotFound => "does not exist".to_owned(),
            _ => format!("cannot {doing}: {error}"),
        };
        CheckpointError::new(message).in_file(path)
    }

    pub(super) fn in_file(mut self, path: &Path) -> CheckpointError {
        self.0.file.get_or_insert_with(|| path.to_owned());
        self
    }

    pub(super) fn at_tensor(mut self, name: &str) -> CheckpointError {
        self.0.tensor.get_or_insert_with(|| name.to_owned());
        self
    }

    pub(super) fn with_help(mut self, help: impl Into<Remedy>) -> CheckpointError {
        self.0.remedy.get_or_insert(help.into());
        self
    }

    /// The file it is in.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The tensor it is about.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }
}

impl Advice for CheckpointError {
    fn remedy(&self) -> Option<Remedy> {
        self.0.remedy.clone()
    }
}

impl std::error::Error for CheckpointError {}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { message, file, tensor, .. } = &*self.0;
        if let Some(file) = file {
            write!(f, "{}: ", visible(&file.to_string_lossy()))?;
        }
        if let Some(tensor) = tensor {
            write!(f, "tensor {}: ", quoted(tensor))?;
        }
        f.write_str(&visible(message))
    }
}

impl From<ConfigError> for CheckpointError {
    fn from(error: ConfigError) -> CheckpointError {
        CheckpointError::new(error.to_string())
    }
}

impl From<ZipError> for CheckpointError {
    fn from(error: ZipError) -> CheckpointError {
        CheckpointError::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_one_line_that_names_file_and_tensor() {
        let error = CheckpointError::new("is [2, 3]").at_tensor("a\nb").in_file(Path::new("m.bin"));
        assert_eq!(error.to_string(), "m.bin: tensor `a\\nb`: is [2, 3]");
    }
}
