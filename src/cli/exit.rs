//! Exit codes and the one message of a failure.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use super::output::warn;
use crate::advice::{Advice, Remedy};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Good.
    Good = 0,
    /// The checked thing failed.
    Failed = 1,
    /// Bad usage or bad input.
    BadInput = 2,
    /// Noise does not allow a verdict.
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

/// What a command gives, or why it could not do its work.
pub(super) type Result<T, E = Failure> = std::result::Result<T, E>;

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

    /// Standard output is closed, which ends the program without a message.
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

impl<E: Advice> From<E> for Failure {
    fn from(error: E) -> Failure {
        let status = if error.is_environment() { Status::Unavailable } else { Status::BadInput };
        let help = error.remedy().map(|remedy| phrase(&remedy));
        Failure { status, message: error.to_string(), help }
    }
}

/// A remedy with the command or the flags that carry it out.
pub(super) fn phrase(remedy: &Remedy) -> String {
    match carried_out_by(remedy) {
        Some(flags) => format!("{remedy}: {flags}"),
        None => remedy.to_string(),
    }
}

fn carried_out_by(remedy: &Remedy) -> Option<Cow<'static, str>> {
    let flags = match remedy {
        Remedy::AcceptNoise => "--accept-noise REASON",
        Remedy::AcceptRegression | Remedy::AcceptOtherMeasurement => "--accept-regression REASON",
        Remedy::AllowCrossHardware => "`anemeter bless REPORT`, or --allow-cross-hw",
        Remedy::Bless => "`anemeter bless REPORT`",
        Remedy::BlessInRepository => "--scratch",
        Remedy::Calibrate { .. } => "--calibration TEXT",
        Remedy::ClearCompileCache => "`anemeter cache clear`",
        Remedy::ChooseFunctions => "--functions NAME,…",
        Remedy::CommitFirst => "`git commit`, or --scratch",
        Remedy::CommonWorkload => "--shapes, --kv",
        Remedy::EmbedTexts => "`anemeter embed BUNDLE --text TEXT`",
        Remedy::EvaluateAgain => "`anemeter eval BUNDLE`",
        Remedy::Export => "`anemeter export CHECKPOINT -o DIR`",
        Remedy::ExportEncoder => "`anemeter export CHECKPOINT -o DIR`",
        Remedy::ExportOrPackage => "`anemeter export CHECKPOINT -o DIR`",
        Remedy::ExportAsset => "`anemeter export CHECKPOINT -o DIR --format coreml,coreai`",
        Remedy::ExportKvForm { wanted, .. } => {
            return Some(format!("`anemeter export --kv {wanted}`").into());
        }
        Remedy::FetchModel(name) => return Some(format!("`hf download {name}`").into()),
        Remedy::GiveContract => {
            "`anemeter adopt PACKAGE… -o DIR --contract FILE`, or `anemeter bench --kind predict`"
        }
        Remedy::GiveShape => "--shape NAME=1x3x224x224, or --inputs FILE",
        Remedy::GiveTokenIds => "--token-ids 1,2,3",
        Remedy::ListFunctions => "`anemeter inspect PACKAGE`",
        Remedy::ListRules => "`anemeter lint --explain all`",
        Remedy::ListWeights => "`anemeter inspect PACKAGE --weights`",
        Remedy::Measure => "`anemeter bench BUNDLE`",
        Remedy::MeasureMoreLaunches => "`anemeter bench BUNDLE --launches 10`",
        Remedy::MeasureUnslowed => "leave --slow-down out",
        Remedy::MoreBudget => "`anemeter run PACKAGE --memory-limit 16GiB --step-limit 1000000000`",
        Remedy::MoreLoadTime => "--load-limit SECONDS",
        Remedy::NewBaseline => "leave --add-session out",
        Remedy::OtherComputeUnits => "`anemeter lint PACKAGE`, or --compute-units cpu+gpu",
        Remedy::OtherKvForm => "--kv io, or `anemeter bench --kv auto`",
        Remedy::OtherRuntime => "--runtime NAME",
        Remedy::Overwrite => "--overwrite",
        Remedy::RawPrompt => "--raw",
        Remedy::SameProfiles => "--profiles FILE",
        Remedy::SameWorkload => "--workload FILE",
        Remedy::TrainedSeqLens => "--shapes N,…",
        Remedy::Verify | Remedy::VerifyAgain => "`anemeter verify BUNDLE --checkpoint CHECKPOINT`",
        Remedy::VerifyBaselines => "`anemeter baselines verify`",
        Remedy::Other(_) => return None,
    };
    Some(flags.into())
}
