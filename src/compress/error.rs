//! Why weights cannot be compressed as asked.

use std::fmt;

/// A request that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressError {
    message: String,
    help: Option<String>,
}

impl CompressError {
    pub(super) fn new(message: impl Into<String>) -> CompressError {
        CompressError { message: message.into(), help: None }
    }

    pub(super) fn with_help(mut self, help: impl Into<String>) -> CompressError {
        self.help = Some(help.into());
        self
    }

    /// What to do about it.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl fmt::Display for CompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CompressError {}
