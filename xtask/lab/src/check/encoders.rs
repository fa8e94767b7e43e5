//! `cargo xtask check encoders`: small random encoders of every class by transformers, exported and embedded.

use std::path::{Path, PathBuf};

use anemeter::checkpoint;
use anemeter::model::ENCODERS;
use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use super::classes::too_few;
use super::conformance::validator::Validator;
use crate::python;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;

const WHAT: &str = "encoders";
const SCRIPT: &str = "xtask/python/tiny_encoders.py";

/// Compares every configuration of the script with transformers, and has the packages validated.
pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let given: Option<PathBuf> = arguments.opt_value_from_str("--program")?;
    xtask::finish(arguments)?;
    let python = match python::interpreter_with_transformers(project) {
        Ok(Some(python)) => python,
        Ok(None) => return Ok(Outcome::not_checked(WHAT, "there is no python3")),
        Err(error) => {
            return Ok(Outcome::not_checked(WHAT, &format!("transformers cannot be installed: {error:#}")));
        }
    };
    let program = match given {
        Some(program) => program,
        None => project.release("anemeter")?,
    };
    let folder = project.target.join("encoders");
    succeed(project.command(&python).arg(SCRIPT).arg(&program).arg(&folder))?;
    let written = super::conformance::folders(&folder, |path| path.join("config.json").is_file())?;
    let classes = written.iter().map(|path| class(path)).collect::<Result<Vec<String>>>()?;
    let known = ENCODERS.iter().flat_map(|encoder| encoder.classes).copied();
    let few = too_few(known, classes.iter().map(String::as_str));
    ensure!(few.is_empty(), "too few checkpoints are of the class {}", few.join(", "));
    let bundles = folder.join("bundles");
    let bundles = super::conformance::folders(&bundles, |path| path.join("export.json").is_file())?;
    let packages = bundles.iter().map(|bundle| super::conformance::folders(bundle, is_package));
    let packages: Vec<PathBuf> = packages.collect::<Result<Vec<_>>>()?.concat();
    let text = format!("{} bundles as transformers computes them", bundles.len());
    let Some(validator) = Validator::find(project)? else {
        return Ok(Outcome::not_checked(WHAT, &format!("{text}, but there is no validator of packages")));
    };
    validator.accepts(&packages)?;
    Ok(Outcome::Checked(format!("{text}, {} packages valid", packages.len())))
}

/// The class that a checkpoint names.
fn class(path: &Path) -> Result<String> {
    let config = checkpoint::open(path)?.config;
    let class =
        config.opt_texts("architectures")?.and_then(|classes| classes.first().copied().map(str::to_owned));
    class.with_context(|| format!("{} names no class", path.display()))
}

/// Whether a folder is a package.
pub(super) fn is_package(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "mlpackage")
}
