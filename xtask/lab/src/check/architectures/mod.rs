//! `cargo xtask check architectures`: what is exported, and the reference of `verify`, against transformers.
//!
//! transformers writes small random checkpoints of every class that can be exported and computes them in f32. Each is
//! exported in every cache form and driven as `generate` does, over sequences that go past every boundary: those of its
//! configuration, the lengths of the caches, and the pieces that a prompt is taken in by.

mod drive;
mod reference;
mod table;

use std::path::{Path, PathBuf};

use anemeter::model::ARCHITECTURES;
use anemeter::vocabulary::Activations;
use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use super::classes::too_few;
use super::conformance::validator::Validator;
use crate::{python, tiny_checkpoints};
use drive::Division;
use reference::Reference;
use table::Row;
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};

const WHAT: &str = "architectures";

/// One checkpoint.
struct Checked {
    name: String,
    class: String,
    rows: Vec<Row>,
    packages: Vec<PathBuf>,
}

/// Compares every checkpoint, or one.
pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let only: Option<String> = arguments.opt_value_from_str("--only")?;
    xtask::finish(arguments)?;
    match python::interpreter_with_transformers(project) {
        Ok(Some(_)) => {}
        Ok(None) => return Ok(Outcome::not_checked(WHAT, "there is no python3")),
        Err(error) => {
            return Ok(Outcome::not_checked(WHAT, &format!("transformers cannot be installed: {error:#}")));
        }
    }
    let folder = tiny_checkpoints::make(project)?.context("the interpreter is gone")?;
    let output = project.target.join("architectures");
    make_empty(&output)?;
    let mut checked = Vec::new();
    for path in checkpoints(&folder, only.as_deref())? {
        let name = path.file_name().and_then(|name| name.to_str()).context("a checkpoint has no name")?;
        println!("{name}");
        checked.push(check(name, &path, &output.join(name)).with_context(|| format!("check {name}"))?);
    }
    print!("{}", table::table(&checked));
    if only.is_none() {
        let known = ARCHITECTURES.iter().flat_map(|architecture| architecture.classes).copied();
        let few = too_few(known, checked.iter().map(|one| one.class.as_str()));
        ensure!(few.is_empty(), "too few checkpoints are of the class {}", few.join(", "));
    }
    judge(project, &checked)
}

/// Fails if a row does, or the validator refuses a package.
fn judge(project: &Project, checked: &[Checked]) -> Result<Outcome> {
    let rows: Vec<&Row> = checked.iter().flat_map(|one| &one.rows).collect();
    let failed = rows.iter().filter(|row| !row.passes()).count();
    let text = format!("{} checkpoints, {} rows", checked.len(), rows.len());
    ensure!(failed == 0, "{failed} rows are beyond their limits: {text}");
    let least = rows.iter().filter_map(|row| row.least_cosine).fold(1.0, f64::min);
    let text = format!("{text}, least cosine {least:.7}");
    let Some(validator) = Validator::find(project)? else {
        return Ok(Outcome::not_checked(WHAT, &format!("{text}, but there is no validator of packages")));
    };
    let packages: Vec<PathBuf> = checked.iter().flat_map(|one| one.packages.clone()).collect();
    validator.accepts(&packages)?;
    Ok(Outcome::Checked(format!("{text}, {} packages valid", packages.len())))
}

fn check(name: &str, path: &Path, output: &Path) -> Result<Checked> {
    let reference = Reference::read(path)?;
    let export =
        |name: &str, division| drive::export(path, &output.join(name), reference.longest(), division);
    let bundle = export("bundle", drive::WHOLE)?;
    let compared = drive::compare(&bundle, &reference)?;
    let oracle = drive::compare_oracle(path, &reference)?;
    let mut rows = table::rows(&reference, &compared, &oracle);
    let twin = export("twin", Division { activations: Activations::Fp32, ..drive::WHOLE })?;
    rows.push(table::twin(&drive::compare(&twin, &reference)?));
    rows.push(drive::greedy(&bundle, &reference, "")?);
    let chunked = export("chunks", Division { chunks: 2, ..drive::WHOLE })?;
    rows.push(drive::greedy(&chunked, &reference, ", 2 chunks")?);
    let batched = export("batch", Division { batch: 2, ..drive::WHOLE })?;
    rows.push(drive::greedy(&batched, &reference, ", batch of 2")?);
    for end in reference.boundaries.iter().filter(|boundary| boundary.end) {
        rows.push(drive::refusal(path, &output.join("beyond"), end));
    }
    let chunks = &bundle.manifest().chunks;
    let packages = chunks.iter().map(|chunk| bundle.path(&chunk.file.name)).collect();
    Ok(Checked { name: name.to_owned(), class: reference.class, rows, packages })
}

/// The folders of the checkpoints, or the one that is asked for.
fn checkpoints(folder: &Path, only: Option<&str>) -> Result<Vec<PathBuf>> {
    let folders = crate::check::conformance::folders(folder, Path::is_dir)?;
    let Some(only) = only else { return Ok(folders) };
    let found: Vec<PathBuf> = folders.into_iter().filter(|path| path.ends_with(only)).collect();
    ensure!(!found.is_empty(), "there is no checkpoint `{only}` in {}", folder.display());
    Ok(found)
}
