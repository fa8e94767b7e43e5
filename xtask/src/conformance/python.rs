//! A Python of our own with the pinned coremltools, below `target/`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::process::{succeed, works};
use crate::project::Project;

const REQUIREMENTS: &str = "xtask/python/requirements.txt";

/// The interpreter, or nothing where the machine has no Python.
pub(super) fn interpreter(project: &Project) -> Result<Option<PathBuf>> {
    if !works(project.command("python3").arg("--version")) {
        return Ok(None);
    }
    let folder = project.target.join("venv");
    let python = folder.join("bin/python");
    let stamp_file = folder.join("requirements.stamp");
    let requirements = project.root.join(REQUIREMENTS);
    let wanted = fs::read_to_string(&requirements).with_context(|| format!("read {REQUIREMENTS}"))?;
    if fs::read_to_string(&stamp_file).is_ok_and(|installed| installed == wanted) {
        return Ok(Some(python));
    }
    println!("making a Python environment for {}", wanted.lines().collect::<Vec<_>>().join(", "));
    succeed(project.command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = project.command(&python);
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "-r"]);
    succeed(pip.arg(&requirements))?;
    fs::write(stamp_file, wanted)?;
    Ok(Some(python))
}
