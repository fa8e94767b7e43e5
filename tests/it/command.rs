//! Running the program.

use std::path::Path;
use std::process::Command;

/// What a run of the program gave.
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `anemeter` with arguments.
pub(crate) fn anemeter(args: &[&str]) -> Outcome {
    run(Command::new(env!("CARGO_BIN_EXE_anemeter")).args(args))
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

    /// The program succeeded without complaint.
    pub(crate) fn succeeded(&self) -> &str {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        &self.stdout
    }
}
