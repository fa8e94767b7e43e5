//! `cargo xtask docs`: `docs/` as an mdBook, with the crates drawn as they are. What links outside of `docs/` lead to comes along, so that the book is whole by itself.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use pico_args::Arguments;

use crate::outcome::Outcome;
use crate::process::{read, succeed};
use crate::project::{Project, make_empty};
use crate::task::{Run, Task};
use crate::tidy::resolved;
use crate::{crates, markdown};

pub(crate) const TASK: Task = Task {
    name: "docs",
    arguments: "[--crates]",
    about: "draw the crates into docs/architecture.md and make target/book/ from docs/, with an mdbook of its own",
    not_checked: 1,
    run: Run::Here(run),
};

/// The mdBook that is installed where there is none.
const VERSION: &str = "0.5.4";
const WHAT: &str = "the book";
/// The folder of the book that holds files from outside of `docs/`.
const CARRIED: &str = "files";

fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let is_picture_only = arguments.contains("--crates");
    crate::finish(arguments)?;
    let drawn = crates::write(project)?;
    println!("docs: {drawn}");
    if is_picture_only { Ok(Outcome::Checked(drawn)) } else { build(project) }
}

/// Builds `target/book/`.
fn build(project: &Project) -> Result<Outcome> {
    let Some(mdbook) = mdbook(project)? else {
        return Ok(Outcome::not_checked(WHAT, "mdbook cannot be installed here"));
    };
    let source = project.target.join("book-source");
    let pages = stage(project, &source)?;
    let book = project.target.join("book");
    succeed(project.command(mdbook).arg("build").arg(&source).arg("--dest-dir").arg(&book))?;
    if !book.join("index.html").is_file() {
        bail!("{}: has no index.html", book.display());
    }
    let done = format!("{pages} pages in {}", book.display());
    println!("docs: {done}");
    Ok(Outcome::Checked(done))
}

/// An mdBook of the wanted version below `target/tools/`.
fn mdbook(project: &Project) -> Result<Option<PathBuf>> {
    let tools = project.target.join("tools");
    let program = tools.join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX));
    let is_wanted = || {
        let version = read(project.command(&program).arg("--version"));
        version.is_ok_and(|version| version.trim().ends_with(VERSION))
    };
    if program.is_file() && is_wanted() {
        return Ok(Some(program));
    }
    fs::create_dir_all(&tools)?;
    let package = format!("mdbook@{VERSION}");
    let mut install =
        project.cargo(&["install", "--locked", "--no-default-features", "--features", "search"]);
    Ok(succeed(install.arg("--root").arg(&tools).arg(package)).is_ok().then_some(program))
}

/// Copies `docs/` to where the book is built from, and gives the number of pages.
fn stage(project: &Project, source: &Path) -> Result<usize> {
    make_empty(source)?;
    let mut list = project.command("git");
    let listed = read(list.args(["ls-files", "--cached", "--others", "--exclude-standard", "docs"]))?;
    let mut pages = 0;
    for path in listed.lines() {
        let inside = path.strip_prefix("docs/").unwrap_or(path);
        let to = source.join(inside);
        let folder = to.parent().context("a file has no folder")?;
        fs::create_dir_all(folder)?;
        if !path.ends_with(".md") {
            fs::copy(project.root.join(path), &to).with_context(|| format!("copy {path}"))?;
            continue;
        }
        let text = fs::read_to_string(project.root.join(path)).with_context(|| format!("read {path}"))?;
        let (text, carried) = gathered(path, &text);
        fs::write(&to, text)?;
        for file in carried {
            carry(project, &file, source)?;
        }
        pages += usize::from(inside != "SUMMARY.md");
    }
    Ok(pages)
}

/// A page whose links lead to carried files where they left `docs/`, and those files.
fn gathered(path: &str, text: &str) -> (String, Vec<String>) {
    let mut text = text.to_owned();
    let mut carried = Vec::new();
    let mut links = markdown::read(&text).links;
    links.sort_by_key(|link| std::cmp::Reverse(link.range.start));
    for link in links.iter().filter(|link| !link.target.contains("://") && !link.target.starts_with('#')) {
        let target = resolved(path, &link.target);
        if target.starts_with("docs/") {
            continue;
        }
        let up = "../".repeat(path.matches('/').count() - 1);
        let shown = text[link.range.clone()].replace(&link.target, &format!("{up}{CARRIED}/{target}"));
        text.replace_range(link.range.clone(), &shown);
        carried.push(target);
    }
    (text, carried)
}

/// Copies a file, or the files directly in a folder, into the book.
fn carry(project: &Project, path: &str, source: &Path) -> Result<()> {
    let (from, to) = (project.root.join(path), source.join(CARRIED).join(path));
    if from.is_file() {
        fs::create_dir_all(to.parent().context("a file has no folder")?)?;
        fs::copy(&from, &to).with_context(|| format!("copy {path}"))?;
        return Ok(());
    }
    bail!("{path}: the documentation links to it, and it is no file; link to a file in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_folder_take_their_files_along() {
        let text = "[a](../b.md) [c](../../configs/d.yaml), [e](#f)";
        let (text, carried) = gathered("docs/guides/x.md", text);
        assert_eq!(text, "[a](../b.md) [c](../files/configs/d.yaml), [e](#f)");
        assert_eq!(carried, ["configs/d.yaml"]);
    }
}
