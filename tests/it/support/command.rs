//! Running the program, and looking at what it leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What a run of the program gave.
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program, not yet run.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_anemeter"))
}

/// Runs `anemeter` with arguments.
pub(crate) fn anemeter(args: &[&str]) -> Outcome {
    run(program().args(args))
}

/// Runs `anemeter inspect` with at most so many bytes of address space.
pub(crate) fn bounded_inspect(package: &Path, bytes: u64) -> Outcome {
    let limited = format!("ulimit -v {}; exec \"$0\" inspect \"$1\"", bytes >> 10);
    run(Command::new("sh").args(["-c", &limited, env!("CARGO_BIN_EXE_anemeter")]).arg(package))
}

/// Runs a command; a program ended by a signal fails the test.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code().expect("ended by a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A document that the program wrote.
pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What is in a folder, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Everything in a folder and in the folders below it; what goes meanwhile may be among it.
pub(crate) fn paths_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        for path in entries.map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

/// Whether something under a temporary name is in a folder.
pub(crate) fn has_unfinished(folder: &Path) -> bool {
    paths_below(folder).iter().any(|path| path.extension().is_some_and(|e| e == "anemeter-tmp"))
}

/// Waits until something under a temporary name is in a folder; false if the program has ended before.
pub(crate) fn await_unfinished(folder: &Path, child: &mut Child) -> bool {
    let began = Instant::now();
    while !has_unfinished(folder) {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(began.elapsed() < Duration::from_secs(300), "nothing was begun");
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Sends a signal and gives the exit code.
pub(crate) fn end(mut child: Child, signal: &str) -> Option<i32> {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    child.wait().unwrap().code()
}

/// What was printed, whatever folder it is about.
pub(crate) fn redact(text: &str, folder: &Path) -> String {
    text.replace(arg(folder), "FOLDER")
}

/// A path as an argument.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Outcome {
    /// The program refused its input: exit code 2, one message, nothing on standard output.
    pub(crate) fn refused(&self) -> &str {
        assert_eq!(self.code, 2, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        assert_eq!(self.stderr.matches("error: ").count(), 1, "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        &self.stderr
    }

    /// The program succeeded, whatever it says beside the result.
    pub(crate) fn good(&self) -> &str {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        &self.stdout
    }

    /// The program refused its input after it had begun: the message without what was said before it.
    pub(crate) fn complaint(&self) -> String {
        assert_eq!(self.code, 2, "{}{}", self.stdout, self.stderr);
        let lines = self.stderr.lines().skip_while(|line| !line.starts_with("error: "));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The program succeeded without complaint.
    pub(crate) fn succeeded(&self) -> &str {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        &self.stdout
    }
}
