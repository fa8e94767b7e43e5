//! `cargo xtask tiny-checkpoints`: a small checkpoint per architecture, with what transformers computes from it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use pico_args::Arguments;

use crate::python;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;

pub(crate) fn run(project: &Project, _: Arguments) -> Result<Outcome> {
    let Some(folder) = make(project)? else {
        return Ok(Outcome::not_checked("tiny checkpoints", "there is no python3"));
    };
    println!("{}", folder.display());
    Ok(Outcome::Checked(folder.display().to_string()))
}

const SCRIPT: &str = "xtask/python/tiny_checkpoints.py";

/// The folder of the checkpoints, or nothing where the machine has no Python. They are made once per version of
/// the script and of transformers.
pub(crate) fn make(project: &Project) -> Result<Option<PathBuf>> {
    let Some(python) = python::interpreter_with_transformers(project)? else { return Ok(None) };
    let folder = project.target.join("tiny-checkpoints");
    let stamp = folder.join("made-by.txt");
    let read = |file| fs::read_to_string(project.root.join(file)).with_context(|| format!("read {file}"));
    let wanted = read(python::TRANSFORMERS_LIST)? + &read(SCRIPT)?;
    if !fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        succeed(project.command(python).arg(SCRIPT).arg(&folder))?;
        fs::write(stamp, wanted)?;
    }
    Ok(Some(folder))
}
