//! `cargo xtask deny`: licences, duplicates, sources and known vulnerabilities of dependencies, by the rules of deny.toml.

use anyhow::Result;

use crate::outcome::Outcome;
use crate::process::{succeed, works};
use crate::project::Project;
use crate::task::{Run, Task};

pub(crate) const TASK: Task = Task {
    name: "deny",
    arguments: "",
    about: "check dependencies with cargo-deny, which cargo installs below target/",
    not_checked: 77,
    run: Run::Here(|project, _| check(project)),
};

const WHAT: &str = "licences and advisories of dependencies";

fn check(project: &Project) -> Result<Outcome> {
    let tools = project.target.join("tools");
    let program = tools.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if !works(project.command(&program).arg("--version")) {
        let mut install = project.cargo(&["install", "cargo-deny", "--locked", "--quiet", "--root"]);
        if succeed(install.arg(&tools)).is_err() {
            return Ok(Outcome::not_checked(WHAT, "cargo cannot install cargo-deny"));
        }
    }
    succeed(project.command(&program).args([
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]))?;
    if !works(project.command(&program).args(["fetch", "db"])) {
        println!("licences, duplicates and sources of dependencies are as deny.toml wants them");
        return Ok(Outcome::not_checked("advisories of dependencies", "their database cannot be fetched"));
    }
    succeed(project.command(&program).args(["check", "--hide-inclusion-graph", "advisories"]))?;
    Ok(Outcome::Checked("licences, duplicates, sources and advisories".to_owned()))
}
