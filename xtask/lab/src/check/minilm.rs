//! `cargo xtask check minilm`: all-MiniLM-L6-v2 with its weights, against sentence-transformers.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::lint::{Setting, Subject, lint};
use anyhow::{Result, ensure};
use pico_args::Arguments;

use super::conformance::validator::Validator;
use super::encoders::is_package;
use crate::python;
use xtask::outcome::Outcome;
use xtask::process::{read, succeed};
use xtask::project::{Project, make_empty};

const WHAT: &str = "MiniLM";
const SCRIPT: &str = "xtask/python/minilm_vectors.py";

/// Exports, validates, lints, verifies and embeds 200 sentences.
pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let given: Option<PathBuf> = arguments.opt_value_from_str("--program")?;
    xtask::finish(arguments)?;
    let Some(python) = python::interpreter_for_packages(project)? else {
        return Ok(Outcome::not_checked(WHAT, "sentence-transformers cannot be installed"));
    };
    let program = match given {
        Some(program) => program,
        None => project.release("anemeter")?,
    };
    let folder = project.target.join("minilm");
    make_empty(&folder)?;
    let model = read(project.command(&python).args([SCRIPT, "model"]))?;
    let (model, bundle) = (PathBuf::from(model.trim_end()), folder.join("bundle"));
    succeed(project.command(&program).arg("export").arg(&model).arg("-o").arg(&bundle))?;
    succeed(project.command(&program).arg("verify").arg(&bundle).arg("--checkpoint").arg(&model))?;
    let packages = super::conformance::folders(&bundle, is_package)?;
    only_lookups_are_elsewhere(&bundle)?;
    let (sentences, vectors) = (folder.join("sentences.txt"), folder.join("vectors.json"));
    succeed(project.command(&python).args([SCRIPT, "sentences"]).arg(&sentences))?;
    let mut embed = project.command(&program);
    let document = read(embed.arg("embed").arg(&bundle).arg("--json").arg("--file").arg(&sentences))?;
    fs::write(&vectors, document)?;
    let said = read(project.command(&python).args([SCRIPT, "compare"]).arg(&sentences).arg(&vectors))?;
    let text = format!("{} by sentence-transformers", said.trim_end());
    println!("{text}");
    let Some(validator) = Validator::find(project)? else {
        return Ok(Outcome::not_checked(WHAT, &format!("{text}, but there is no validator of packages")));
    };
    validator.accepts(&packages)?;
    Ok(Outcome::Checked(format!("{text}, {} package(s) valid", packages.len())))
}

/// Nothing but the lookup of vectors is predicted to be off the Neural Engine, and no rule finds an error.
fn only_lookups_are_elsewhere(bundle: &Path) -> Result<()> {
    let report = lint(&Subject::open(bundle)?, &Setting::default(), &[])?;
    ensure!(report.counts.errors == 0, "lint finds {} errors", report.counts.errors);
    let islands = report.placements.iter().flat_map(|placement| &placement.islands);
    let operations = islands.flat_map(|island| &island.operations);
    let mut others = operations.filter(|operation| operation.kind != "gather");
    match others.next() {
        Some(other) => anyhow::bail!("`{}` is predicted to be off the Neural Engine", other.name),
        None => Ok(()),
    }
}
