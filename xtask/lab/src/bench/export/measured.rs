//! What a process took, and what copying takes.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use xtask::process::{read, succeed};
use xtask::project::Project;

/// What a process took.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_bytes: u64,
    /// Exit status, where it is told.
    #[serde(default)]
    pub(crate) status: i32,
}

/// Runs a command under `measure.py`.
pub(crate) fn run(project: &Project, command: &[&Path]) -> Result<Measured> {
    let mut measure = project.command("python3");
    parse(measure.arg("xtask/python/measure.py").args(command))
}

/// Runs a command that prints what it took.
pub(crate) fn parse<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    let text = read(command)?;
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("read what was measured from `{line}`"))
}

/// Seconds to copy files into a folder and have them on disk. The copies are removed again.
pub(crate) fn time_copy(project: &Project, files: &[impl AsRef<Path>], folder: &Path) -> Result<f64> {
    succeed(&mut project.command("sync"))?;
    let copy = folder.join("copy.bin");
    let mut seconds = 0.0;
    for file in files {
        let start = Instant::now();
        fs::copy(file, &copy)?;
        File::open(&copy)?.sync_all()?;
        seconds += start.elapsed().as_secs_f64();
        fs::remove_file(&copy)?;
    }
    Ok(seconds)
}
