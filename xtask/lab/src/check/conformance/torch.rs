//! `--torch`: the program's predictions against torch, for modules that coremltools converts here and now.

use std::path::PathBuf;

use anyhow::Result;

use super::ops;
use crate::python;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;

const WHAT: &str = "converted torch modules";

/// Every case must pass: their tolerances leave room for rounding, not for anything else.
const REQUIRED_RATE: &str = "1";

/// Converts the modules and scores the release program over them.
pub(super) fn check(project: &Project, limit: Option<usize>) -> Result<Outcome> {
    if !ops::scorer(project).is_file() {
        return Ok(Outcome::not_checked(WHAT, "the corpus's check.py is not beside the repository"));
    }
    let Some(cases) = convert(project)? else {
        return Ok(Outcome::not_checked(WHAT, "there is no python3"));
    };
    ops::score(project, &ops::Cases { name: "torch", folder: cases, required_rate: REQUIRED_RATE }, limit)
}

/// Converts the modules; nothing without Python.
pub(super) fn convert(project: &Project) -> Result<Option<PathBuf>> {
    let Some(python) = python::interpreter_with_torch(project)? else { return Ok(None) };
    let cases = project.target.join("conformance/torch");
    succeed(project.command(python).arg("xtask/python/torch_packages.py").arg(&cases))?;
    Ok(Some(cases))
}
