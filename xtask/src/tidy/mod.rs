//! `cargo xtask tidy`: rules of the house that neither the compiler nor clippy knows.

mod commands;
mod document;
mod files;
mod imports;
mod links;
mod package;
mod source;
mod unsafety;
mod words;

pub(crate) use links::resolved;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::Command;
use crate::docs::reference;
use crate::guides;
use crate::outcome::Outcome;
use crate::process::read;
use crate::project::Project;

pub(crate) const COMMAND: Command = Command {
    name: "tidy",
    arguments: "",
    about: "import table, file sizes, unsafe islands, leftovers, machine paths, package list; links, commands, reference and worked examples of the docs",
    not_checked: 1,
    run: |project, _| check(project),
};

/// A text file of the repository.
#[derive(Debug)]
struct File {
    /// Relative to the top folder, with forward slashes.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    fn is_markdown(&self) -> bool {
        self.has_extension("md")
    }

    fn has_extension(&self, wanted: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == wanted)
    }
}

/// Makes every check and reports all findings at once.
pub(crate) fn check(project: &Project) -> Result<Outcome> {
    let files = read_files(project)?;
    let architecture = files
        .iter()
        .find(|file| file.path == document::PATH)
        .with_context(|| format!("{} is missing", document::PATH))?;
    let table = document::import_table(&architecture.text)?;
    let islands = document::unsafe_islands(&architecture.text)?;

    let mut findings = imports::check(&table, &files);
    findings.extend(files::check_docs(&files));
    findings.extend(files::check_sizes(&files));
    findings.extend(files::check_names(&files));
    findings.extend(unsafety::check(&islands, &files));
    findings.extend(words::check(&files));
    findings.extend(links::check(&files, &paths(project)?));
    findings.extend(commands::check(&files));
    findings.extend(reference::stale(project)?);
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

/// Every file that git tracks or would track.
fn paths(project: &Project) -> Result<Vec<String>> {
    let mut list = project.command("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = read(&mut list)?;
    Ok(listed.lines().filter(|path| project.root.join(path).is_file()).map(str::to_owned).collect())
}

/// Those of them that are text.
fn read_files(project: &Project) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in paths(project)? {
        let bytes = fs::read(project.root.join(&path)).with_context(|| format!("read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path, text });
        }
    }
    Ok(files)
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}
