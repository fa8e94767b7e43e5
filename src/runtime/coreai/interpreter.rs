//! The Python that has Apple's module: where it is found, and what it has.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use anemeter_base::text::visible;

/// The variable that names an interpreter.
pub const PYTHON_VARIABLE: &str = "ANEMETER_PYTHON";
/// What is taken where none is named.
const USUAL: &str = "python3";
/// The version that everything was tried with.
pub const PINNED: &str = "coreai-core==1.0.0b3";

/// Time for an interpreter to say what it has. It loads none of it.
const LIMIT: Duration = Duration::from_secs(30);
/// The longest answer.
const LONGEST: u64 = 64 << 10;

/// Asks for versions without loading anything.
const QUESTION: &str = "\
import json, platform
from importlib.metadata import PackageNotFoundError, version
try:
    wheel = version('coreai-core')
except PackageNotFoundError:
    wheel = None
print(json.dumps({'python': platform.python_version(), 'system': platform.system(), 'machine': platform.machine(),
                  'macos': platform.mac_ver()[0], 'libc': ' '.join(platform.libc_ver()), 'wheel': wheel}))
";

/// An interpreter and what named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// The program.
    pub program: PathBuf,
    /// What named it.
    pub named_by: NamedBy,
}

/// What named an interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// Whoever called.
    Caller,
    /// The variable [`PYTHON_VARIABLE`].
    Variable,
    /// Nobody: it is the one in the search path.
    SearchPath,
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.program.display();
        match self.named_by {
            NamedBy::Caller => write!(f, "{program}"),
            NamedBy::Variable => write!(f, "{program} (of {PYTHON_VARIABLE})"),
            NamedBy::SearchPath => write!(f, "{program} (in PATH)"),
        }
    }
}

/// The interpreter that a command named, for this process.
static NAMED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Makes every runtime `coreai` of this process that names no interpreter use this one.
pub fn use_interpreter(program: impl Into<PathBuf>) {
    *NAMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(program.into());
}

/// The interpreter that [`use_interpreter`] named.
pub fn named_interpreter() -> Option<PathBuf> {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Interpreter {
    /// The one that was named, by the caller or the variable, or else the usual one.
    pub fn find(named: Option<&Path>) -> Interpreter {
        let by_caller = named.map(Path::to_owned).or_else(named_interpreter);
        Interpreter::of(by_caller, std::env::var_os(PYTHON_VARIABLE))
    }

    fn of(by_caller: Option<PathBuf>, by_variable: Option<OsString>) -> Interpreter {
        let by_variable = by_variable.filter(|value| !value.is_empty()).map(PathBuf::from);
        match (by_caller, by_variable) {
            (Some(program), _) => Interpreter { program, named_by: NamedBy::Caller },
            (None, Some(program)) => Interpreter { program, named_by: NamedBy::Variable },
            (None, None) => Interpreter { program: USUAL.into(), named_by: NamedBy::SearchPath },
        }
    }

    /// A command of it that finds no modules in the working folder, where anything may be called `coreai`.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("PYTHONSAFEPATH", "1");
        command
    }

    /// What it has, or why it cannot be asked.
    pub fn ask(&self) -> Result<Versions, InterpreterError> {
        let interpreter = || self.to_string();
        let mut command = self.command();
        command.args(["-c", QUESTION]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|source| InterpreterError::Start { interpreter: interpreter(), source })?;
        let stdout = child.stdout.take().expect("it is piped");
        let reader = std::thread::spawn(move || {
            let mut answer = Vec::new();
            stdout.take(LONGEST).read_to_end(&mut answer).map(|_| answer)
        });
        let began = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if began.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(2)),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(InterpreterError::Silent { interpreter: interpreter() });
                }
            }
        };
        if !status.success() {
            return Err(InterpreterError::Failed { interpreter: interpreter(), status });
        }
        let answer = reader.join().ok().and_then(Result::ok).unwrap_or_default();
        serde_json::from_slice(&answer).map_err(|_| {
            let answer = visible(&String::from_utf8_lossy(&answer[..answer.len().min(64)]));
            InterpreterError::Answer { interpreter: interpreter(), answer }
        })
    }
}

/// Why an interpreter cannot be asked what it has.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum InterpreterError {
    /// It does not start.
    #[error("{interpreter} cannot be started: {source}")]
    Start { interpreter: String, source: io::Error },
    /// It takes too long.
    #[error("{interpreter} did not say its version within {} s", LIMIT.as_secs())]
    Silent { interpreter: String },
    /// It ends with an error.
    #[error("{interpreter} is no Python that works ({status})")]
    Failed { interpreter: String, status: ExitStatus },
    /// It says something else.
    #[error("{interpreter} is no Python: it answered {answer:?}")]
    Answer { interpreter: String, answer: String },
}

/// What an interpreter has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Versions {
    /// Version of Python.
    pub python: String,
    /// Such as `Linux` or `Darwin`.
    pub system: String,
    /// Such as `x86_64`.
    pub machine: String,
    /// Version of macOS; empty elsewhere.
    pub macos: String,
    /// The C library and its version; empty where it cannot be told.
    pub libc: String,
    /// Version of coreai-core, if it is installed.
    pub wheel: Option<String>,
}

impl Versions {
    /// Why Core AI cannot be used with it, and what would help.
    pub fn problem(&self, interpreter: &Interpreter) -> Option<String> {
        if self.wheel.is_some() {
            return None;
        }
        let Versions { python, system, machine, .. } = self;
        let (major, minor) = {
            let mut parts = python.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
            (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
        };
        let is_supported =
            (system == "Darwin" && machine == "arm64") || (system == "Linux" && machine == "x86_64");
        Some(if !is_supported {
            format!(
                "Apple has no coreai-core for {system} on {machine}, only for macOS and for Linux on x86_64"
            )
        } else if (major, minor) < (3, 11) {
            format!("{interpreter} is Python {python}, and coreai-core takes 3.11 or later; name another")
        } else {
            let program = interpreter.program.display();
            format!(
                "{interpreter}, Python {python}, has no coreai-core; install it: {program} -m pip install {PINNED}"
            )
        })
    }

    /// Where operations are executed: by the system's framework from macOS 27 on.
    pub fn has_system_framework(&self) -> bool {
        let major = self.macos.split('.').next().and_then(|major| major.parse::<u32>().ok());
        self.system == "Darwin" && major.is_some_and(|major| major >= 27)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_counts_before_the_variable_and_that_before_the_search_path() {
        let of = |caller: Option<&str>, variable: Option<&str>| {
            Interpreter::of(caller.map(PathBuf::from), variable.map(OsString::from)).to_string()
        };
        assert_eq!(of(Some("/a/python"), Some("/b/python")), "/a/python");
        assert_eq!(of(None, Some("/b/python")), "/b/python (of ANEMETER_PYTHON)");
        assert_eq!(of(None, Some("")), "python3 (in PATH)");
        assert_eq!(of(None, None), "python3 (in PATH)");
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_install() {
        let interpreter = Interpreter { program: "py".into(), named_by: NamedBy::Caller };
        let has = |python: &str, system: &str, machine: &str, macos: &str, wheel: Option<&str>| Versions {
            python: python.to_owned(),
            system: system.to_owned(),
            machine: machine.to_owned(),
            macos: macos.to_owned(),
            libc: String::new(),
            wheel: wheel.map(str::to_owned),
        };
        let problem = |versions: Versions| versions.problem(&interpreter).unwrap_or_default();
        insta::assert_snapshot!(problem(has("3.12.1", "Linux", "x86_64", "", None)), @"py, Python 3.12.1, has no coreai-core; install it: py -m pip install coreai-core==1.0.0b3");
        insta::assert_snapshot!(problem(has("3.9.6", "Darwin", "arm64", "27.0", None)), @"py is Python 3.9.6, and coreai-core takes 3.11 or later; name another");
        insta::assert_snapshot!(problem(has("3.12.1", "Linux", "aarch64", "", None)), @"Apple has no coreai-core for Linux on aarch64, only for macOS and for Linux on x86_64");
        assert_eq!(problem(has("3.12.1", "Linux", "x86_64", "", Some("1.0.0b3"))), "");
        assert!(has("3.12.1", "Darwin", "arm64", "27.1", None).has_system_framework());
        assert!(!has("3.12.1", "Darwin", "arm64", "26.4", None).has_system_framework());
        assert!(!has("3.12.1", "Linux", "x86_64", "", None).has_system_framework());
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_python_is_told() {
        let ask = |program: &str| {
            Interpreter { program: program.into(), named_by: NamedBy::Caller }.ask().unwrap_err().to_string()
        };
        assert!(ask("/no/such/python").starts_with("/no/such/python cannot be started: "));
        assert!(ask("false").contains("is no Python that works (exit status: 1)"));
        insta::assert_snapshot!(ask("echo").chars().take(40).collect::<String>(), @r#"echo is no Python: it answered "-c impor"#);
    }
}
