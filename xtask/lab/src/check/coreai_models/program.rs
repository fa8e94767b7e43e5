//! The program under check, with the Python that has Apple's module.

use std::path::PathBuf;
use std::process::Output;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use xtask::process::succeed;
use xtask::project::Project;

/// The program, and the Python for its runtime `coreai`.
pub(super) struct Anemeter {
    pub(super) program: PathBuf,
    pub(super) python: PathBuf,
}

/// What a command came to.
pub(super) struct Ran {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Builds the program as tests build it.
pub(super) fn build(project: &Project) -> Result<PathBuf> {
    succeed(&mut project.cargo(&["build", "--quiet", "--package", "anemeter", "--bin", "anemeter"]))?;
    Ok(project.target.join("debug/anemeter"))
}

impl Anemeter {
    /// Runs a command, whatever it comes to.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<Ran> {
        let mut command = std::process::Command::new(&self.program);
        command.args(arguments).env("ANEMETER_PYTHON", &self.python);
        let Output { status, stdout, stderr } =
            command.output().with_context(|| format!("start {}", self.program.display()))?;
        let Some(code) = status.code() else { bail!("anemeter {}: {status}", arguments.join(" ")) };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ran { code, stdout: text(stdout), stderr: text(stderr) })
    }

    /// Runs a command that must end with this exit code.
    pub(super) fn ends_with(&self, code: i32, arguments: &[&str]) -> Result<Ran> {
        let ran = self.run(arguments)?;
        let Ran { stdout, stderr, .. } = &ran;
        ensure!(
            ran.code == code,
            "anemeter {} ended with {}, not {code}:\n{stdout}{stderr}",
            arguments.join(" "),
            ran.code
        );
        Ok(ran)
    }

    /// Runs a command that must succeed.
    pub(super) fn good(&self, arguments: &[&str]) -> Result<Ran> {
        self.ends_with(0, arguments)
    }

    /// Runs a command that prints a JSON document.
    pub(super) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let ran = self.good(arguments)?;
        serde_json::from_str(&ran.stdout).with_context(|| format!("anemeter {}", arguments.join(" ")))
    }
}
