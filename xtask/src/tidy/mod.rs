//! `cargo xtask tidy`: rules of the house that neither the compiler nor clippy knows.

mod actions;
mod commands;
mod dependencies;
mod document;
mod files;
mod links;
mod package;
mod source;
mod unsafety;
mod words;

pub(crate) use links::resolved;

use anyhow::{Context, Result, bail};

use crate::outcome::Outcome;
use crate::process::read;
use crate::project::Project;
use crate::task::{Run, Task};
use crate::tree::{paths, read_files};
use crate::{crates, guides, metadata};

pub(crate) const TASK: Task = Task {
    name: "tidy",
    arguments: "",
    about: "file sizes, unsafe islands, leftovers, machine paths, package list, pinned actions, unused dependencies; links, tasks, picture of the crates and worked examples of the docs",
    not_checked: 1,
    run: Run::Here(|project, _| check(project)),
};

/// Makes every check and reports all findings at once.
pub(crate) fn check(project: &Project) -> Result<Outcome> {
    let files = read_files(project)?;
    let architecture = files
        .iter()
        .find(|file| file.path == document::PATH)
        .with_context(|| format!("{} is missing", document::PATH))?;
    let islands = document::unsafe_islands(&architecture.text)?;

    let mut findings = files::check_docs(&files);
    findings.extend(files::check_sizes(&files));
    findings.extend(files::check_names(&files));
    findings.extend(unsafety::check(&islands, &files));
    findings.extend(words::check(&files));
    findings.extend(actions::check(&files));
    findings.extend(links::check(&files, &paths(project)?));
    findings.extend(commands::check(&files));
    findings.extend(dependencies::check(&metadata::workspace(project)?, &files));
    findings.extend(crates::stale(project)?);
    findings.extend(guides::stale(project)?);
    findings.extend(package::check(&read(&mut project.cargo(&["package", "--list", "--allow-dirty"]))?));

    for warning in files::growing(&files) {
        println!("warning: {warning}");
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    let done = format!("{} files", files.len());
    println!("tidy: {done}, nothing to complain about");
    Ok(Outcome::Checked(done))
}
