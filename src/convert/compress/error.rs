//! Why weights cannot be compressed as asked.

use anemeter_base::advice::{Advice, Remedy};

pub(super) type Result<T, E = CompressError> = std::result::Result<T, E>;

/// A request that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompressError {
    message: String,
    remedy: Option<Remedy>,
}

impl CompressError {
    pub(super) fn new(message: impl Into<String>) -> CompressError {
        CompressError { message: message.into(), remedy: None }
    }

    pub(super) fn with_help(mut self, help: impl Into<Remedy>) -> CompressError {
        self.remedy = Some(help.into());
        self
    }
}

impl Advice for CompressError {
    fn remedy(&self) -> Option<Remedy> {
        self.remedy.clone()
    }
}
