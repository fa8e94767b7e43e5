//! `cargo xtask check guides`: the worked examples of the guides, applied to a copy of the tree and tried.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use pico_args::Arguments;

use crate::markdown;
use crate::outcome::Outcome;
use crate::process::{read, succeed, works};
use crate::project::Project;
use crate::task::{Run, Task};

pub(crate) const TASK: Task = Task {
    name: "guides",
    arguments: "[GUIDE]",
    about: "apply tests/guides/*.patch to a copy of the last commit, check it, and run what each guide tells to run",
    not_checked: 1,
    run: Run::Here(|project, mut arguments: Arguments| {
        let only: Option<String> = arguments.opt_free_from_str()?;
        crate::finish(arguments)?;
        run(project, only.as_deref())
    }),
};

/// Where patches are; each is named after its page in `docs/guides/`.
const FOLDER: &str = "tests/guides";

/// A worked example.
struct Example {
    name: String,
    patch: PathBuf,
    /// `cargo` commands that the page tells to run, as lists of arguments.
    trials: Vec<Vec<String>>,
}

/// Patches that no longer apply to the files as they are, and those without a page.
pub(crate) fn stale(project: &Project) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for example in examples(project)? {
        if !works(project.command("git").args(["apply", "--check"]).arg(&example.patch)) {
            findings.push(format!("{FOLDER}/{}.patch does not apply any more", example.name));
        }
        if example.trials.is_empty() {
            findings.push(format!("docs/guides/{}.md tells to run no `cargo test`", example.name));
        }
    }
    Ok(findings)
}

fn run(project: &Project, only: Option<&str>) -> Result<Outcome> {
    let mut examples = examples(project)?;
    if let Some(name) = only {
        examples.retain(|example| example.name == name);
    }
    if examples.is_empty() {
        bail!("there is no such guide\nhelp: {FOLDER} has a patch for each that can be tried");
    }
    let tree = project.target.join("guides");
    remove(project, &tree)?;
    succeed(project.command("git").args(["worktree", "add", "--quiet", "--detach"]).arg(&tree).arg("HEAD"))?;
    let tried = examples.iter().try_for_each(|example| {
        println!("\n-- {} --", example.name);
        attempt(project, &tree, example).with_context(|| example.name.clone())
    });
    remove(project, &tree)?;
    tried?;
    Ok(Outcome::Checked(format!("{} guides", examples.len())))
}

fn attempt(project: &Project, tree: &Path, example: &Example) -> Result<()> {
    let git = |arguments: &[&str]| {
        let mut git = project.command("git");
        git.args(arguments).current_dir(tree);
        git
    };
    succeed(&mut git(&["reset", "--quiet", "--hard"]))?;
    succeed(&mut git(&["clean", "--quiet", "--force", "-d"]))?;
    succeed(git(&["apply"]).arg(&example.patch))?;
    let cargo = |arguments: &[&str]| {
        let mut cargo = project.cargo(arguments);
        // The crates of others are built already where the project builds.
        cargo.current_dir(tree).env("CARGO_TARGET_DIR", &project.target);
        cargo
    };
    succeed(&mut cargo(&["check", "--quiet"]))?;
    for trial in &example.trials {
        let arguments: Vec<&str> = trial.iter().map(String::as_str).collect();
        let said = read(&mut cargo(&arguments))?;
        let passed =
            said.lines().any(|line| line.starts_with("test result: ok. ") && !line.contains(" 0 passed"));
        if !passed {
            bail!("`cargo {}` ran no test", trial.join(" "));
        }
        print!("{said}");
    }
    Ok(())
}

fn examples(project: &Project) -> Result<Vec<Example>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(project.root.join(FOLDER)).with_context(|| format!("read {FOLDER}"))? {
        let patch = entry?.path();
        let Some(name) = patch.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let name = name.to_owned();
        let page = project.root.join(format!("docs/guides/{name}.md"));
        let text = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
        found.push(Example { trials: trials(&text), name, patch });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Tests that a page tells to run in a block of its own.
fn trials(page: &str) -> Vec<Vec<String>> {
    let blocks = markdown::read(page).code.into_iter().filter(|code| !code.is_span);
    let words = blocks.filter_map(|code| shlex::split(&code.text));
    words
        .filter(|words| words.starts_with(&["cargo".into(), "test".into()]))
        .map(|w| w[1..].to_vec())
        .collect()
}

fn remove(project: &Project, tree: &Path) -> Result<()> {
    if tree.exists() {
        succeed(project.command("git").args(["worktree", "remove", "--force"]).arg(tree))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_taken_from_blocks_only() {
        let page = "`cargo test --all`\n\n```sh\ncargo test --lib 'a b'\ncargo fmt\n```\n";
        assert_eq!(trials(page), [["test", "--lib", "a b"]]);
    }
}
