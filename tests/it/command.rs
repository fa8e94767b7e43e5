//! Running the program.

use std::path::Path;
use std::process::Command;

/// What a run of the program gave.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `anemeter` with arguments.
pub fn anemeter(args: &[&str]) -> Outcome {
    run(Command::new(env!("CARGO_BIN_EXE_anemeter")).args(args))
}

/// Runs a command; a program ended by a signal fails the test.
pub fn run(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code().expect("ended by a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A path as an argument.
pub fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Outcome {
    /// The program refused its input: exit code 2, one message, nothing on standard output.
    pub fn refused(&self) -> &str {
        assert_eq!(self.code, 2, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        assert_eq!(self.stderr.matches("error: ").count(), 1, "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        &self.stderr
    }

    /// The program succeeded without complaint.
    pub fn succeeded(&self) -> &str {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        &self.stdout
    }
}
