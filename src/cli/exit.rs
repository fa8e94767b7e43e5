//! Exit codes and the one message of a failure.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use super::output::warn;
use crate::baseline::BaselineError;
use crate::bundle::BundleError;
use crate::checkpoint::CheckpointError;
use crate::compress::CompressError;
use crate::config::ConfigFileError;
use crate::export::ExportError;
use crate::gate::GateError;
use crate::generate::GenerateError;
use crate::lint::LintError;
use crate::package::PackageError;
use crate::render::RenderError;
use crate::runtime::RuntimeError;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Good.
    Good = 0,
    /// The checked thing failed.
    Failed = 1,
    /// Bad usage or bad input.
    BadInput = 2,
    /// Noise leaves it open.
    Inconclusive = 3,
    /// A runtime or the environment is unavailable.
    Unavailable = 4,
}

impl Status {
    /// Every way to end, by exit code.
    pub const ALL: [Status; 5] =
        [Status::Good, Status::Failed, Status::BadInput, Status::Inconclusive, Status::Unavailable];

    /// What it means, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Status::Good => "good",
            Status::Failed => "the checked thing failed",
            Status::BadInput => "bad usage or bad input",
            Status::Inconclusive => "inconclusive",
            Status::Unavailable => "a runtime or the environment is unavailable",
        }
    }
}

/// The last line of `--help`.
pub(super) fn help() -> String {
    let codes = Status::ALL.map(|status| format!("{} {}", status as u8, status.meaning()));
    format!(
        "Exit codes: {}; 130 interrupted\n\n\
         Examples:\n  anemeter quickstart\n  anemeter export CHECKPOINT -o bundle\n  anemeter bench bundle",
        codes.join("; ")
    )
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

/// A command that could not do its work.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    message: String,
    help: Option<String>,
}

impl Failure {
    /// Bad usage or bad input.
    pub fn bad_input(message: impl Display) -> Failure {
        Failure { status: Status::BadInput, message: message.to_string(), help: None }
    }

    /// Something is wrong with a file or a folder.
    pub fn at(path: &Path, problem: impl Display) -> Failure {
        Failure::bad_input(format!("{}: {problem}", path.display()))
    }

    /// Says what to do about it.
    pub fn with_help(mut self, help: impl Into<String>) -> Failure {
        self.help = Some(help.into());
        self
    }

    /// Says what it is about.
    pub fn about(mut self, what: &str) -> Failure {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Output that nobody reads any more: not worth a message.
    pub fn closed_pipe() -> Failure {
        Failure { status: Status::Good, message: String::new(), help: None }
    }

    /// Prints the message and gives the exit code.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            warn(format_args!("error: {}", self.message));
        }
        if let Some(help) = self.help {
            warn(format_args!("help: {help}"));
        }
        self.status.into()
    }
}

/// Bad input that may know what to do about it.
macro_rules! bad_input {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                let failure = Failure::bad_input(&error);
                match error.help() {
                    Some(help) => failure.with_help(help),
                    None => failure,
                }
            }
        }
    )*};
}
bad_input!(
    BaselineError,
    BundleError,
    CheckpointError,
    CompressError,
    ConfigFileError,
    ExportError,
    GateError,
    LintError,
    PackageError
);

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Failure {
        let status = match &error {
            GenerateError::Runtime { source, .. } => status_of(source),
            _ => Status::BadInput,
        };
        Failure { status, message: error.to_string(), help: error.help().map(ToOwned::to_owned) }
    }
}

/// Whether the machine or the input is to blame.
fn status_of(error: &RuntimeError) -> Status {
    match error {
        RuntimeError::Environment(_)
        | RuntimeError::CoreMl { .. }
        | RuntimeError::NoState { .. }
        | RuntimeError::TimedOut { .. } => Status::Unavailable,
        _ => Status::BadInput,
    }
}

impl From<RenderError> for Failure {
    fn from(error: RenderError) -> Failure {
        Failure::bad_input(error)
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Failure {
        let help = error.help().map(ToOwned::to_owned);
        Failure { status: status_of(&error), message: error.to_string(), help }
    }
}
