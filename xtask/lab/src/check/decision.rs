//! `cargo xtask check decision`: the commands of the guide "Choose a precision" with a real model, in an empty folder: the
//! exit code of each and the files that it leaves, and the page that they end in as a release engineer sees it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use super::quickstart::check_page;
use crate::fetch_smollm2::{Fetched, fetch};
use xtask::markdown;
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};

const GUIDE: &str = "docs/guides/choose-a-precision.md";
const TEXT: &str = "src/quickstart/merrow.txt";
/// The checkpoint of the guide, for which another one is taken.
const CHECKPOINT: &str = "merrow-int8";
/// The file that the guide shows, and the page that its commands end in.
const SWEEP: &str = "sweep.yaml";
const PAGE: &str = "reports/sweep/sweep.html";

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let checkpoint: Option<PathBuf> = arguments.opt_value_from_str("--checkpoint")?;
    xtask::finish(arguments)?;
    let checkpoint = match checkpoint {
        Some(path) => path.canonicalize().with_context(|| format!("{}", path.display()))?,
        None => match fetch(project)? {
            Fetched::There(path) => path,
            Fetched::NotAvailable(why) => return Ok(Outcome::not_checked("the decision", &why)),
        },
    };
    println!("building for speed");
    let program = project.release("anemeter")?;
    let guide = fs::read_to_string(project.root.join(GUIDE)).context(GUIDE)?;
    let folder = project.target.join("decision");
    make_empty(&folder)?;
    fs::copy(project.root.join(TEXT), folder.join("text.txt"))?;
    fs::write(folder.join(SWEEP), shown_file(&guide, SWEEP)?)?;
    let commands = commands(&guide);
    ensure!(!commands.is_empty(), "{GUIDE} has no commands");
    let mut known = files(&folder)?;
    for command in &commands {
        println!("\n$ {command}");
        let words = command.split_whitespace().skip(1).map(|word| match word == CHECKPOINT {
            true => checkpoint.as_os_str(),
            false => OsStr::new(word),
        });
        let status = project.command(&program).current_dir(&folder).args(words).status()?;
        let is_expected = status.code().is_some_and(|code| expected(command).contains(&code));
        ensure!(is_expected, "`{command}` failed ({status})");
        println!("{status}");
        let now = files(&folder)?;
        now.difference(&known).for_each(|file| println!("  + {file}"));
        let is_silent = matches!(subcommand(command), "lint" | "compare");
        ensure!(is_silent || now != known, "`{command}` left no file");
        known = now;
    }
    Ok(match check_page(&folder.join(PAGE))? {
        Some(page) => Outcome::Checked(format!("{}: {page}", folder.join(PAGE).display())),
        None => Outcome::not_checked("the page", "there is no Chromium, and apt-get cannot install it"),
    })
}

/// The second word of a command.
fn subcommand(command: &str) -> &str {
    command.split_whitespace().nth(1).unwrap_or_default()
}

/// The exit codes that a command may end with: what is a verdict on a candidate depends on the checkpoint.
fn expected(command: &str) -> &'static [i32] {
    match subcommand(command) {
        "lint" | "verify" => &[0, 1],
        "compare" => &[0, 1, 3],
        _ => &[0],
    }
}

/// Files below a folder, a package as one.
fn files(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("read {}", next.display()))? {
            let path = entry?.path();
            match path.is_dir() && path.extension().is_none_or(|extension| extension != "mlpackage") {
                true => folders.push(path),
                false => drop(found.insert(path.strip_prefix(folder)?.display().to_string())),
            }
        }
    }
    Ok(found)
}

/// The commands of a guide, in order.
fn commands(guide: &str) -> Vec<String> {
    let code = markdown::read(guide).code.into_iter().filter(|code| !code.is_span);
    code.filter_map(|code| code.text.strip_prefix("$ ").map(str::to_owned)).collect()
}

/// A file that a guide shows in a block with its name.
fn shown_file(guide: &str, name: &str) -> Result<String> {
    let is_first = |line: &&str| line.trim_start().starts_with("```") && line.ends_with(&format!(" {name}"));
    let mut lines = guide.lines().skip_while(|line| !is_first(line));
    let first = lines.next().with_context(|| format!("{GUIDE} shows no {name}"))?;
    let indent = first.len() - first.trim_start().len();
    let lines = lines.take_while(|line| line.trim() != "```");
    Ok(lines.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_verdicts_may_be_other_than_zero() {
        assert_eq!(expected("anemeter verify fp16 --text text.txt"), [0, 1]);
        assert_eq!(expected("anemeter compare a b"), [0, 1, 3]);
        for command in ["anemeter export a -o b", "anemeter bench --sweep sweep.yaml", "anemeter report a"] {
            assert_eq!(expected(command), [0], "{command}");
        }
    }

    #[test]
    fn a_package_is_one_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("fp16/model.mlpackage/Data")).unwrap();
        fs::write(folder.path().join("fp16/export.json"), "{}").unwrap();
        let found: Vec<String> = files(folder.path()).unwrap().into_iter().collect();
        assert_eq!(found, ["fp16/export.json", "fp16/model.mlpackage"]);
    }

    #[test]
    fn commands_and_files_are_those_of_the_guide() {
        let guide = "1. Do.\n\n   ```yaml sweep.yaml\n   a:\n     - b\n   ```\n\n   ```console\n   $ anemeter lint a\n   fine\n   ```\n";
        assert_eq!(commands(guide), ["anemeter lint a"]);
        assert_eq!(shown_file(guide, SWEEP).unwrap(), "a:\n  - b\n");
        assert!(shown_file(guide, "other.yaml").is_err());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let guide = fs::read_to_string(root.join(GUIDE)).unwrap();
        assert!(commands(&guide).len() > 20 && shown_file(&guide, SWEEP).unwrap().contains("bundles:"));
    }
}
