//! `cargo xtask msrv`: the oldest compiler that the manifest promises builds the program.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::Command;
use crate::outcome::Outcome;
use crate::process::{succeed, works};
use crate::project::Project;

pub(crate) const COMMAND: Command = Command {
    name: "msrv",
    arguments: "",
    about: "check the program with the oldest compiler that Cargo.toml promises, which rustup installs",
    not_checked: 77,
    run: |project, _| check(project),
};

#[derive(Deserialize)]
struct Manifest {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: Package,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Package {
    rust_version: String,
}

fn check(project: &Project) -> Result<Outcome> {
    let manifest = std::fs::read_to_string(project.root.join("Cargo.toml")).context("read Cargo.toml")?;
    let version = promised(&manifest)?;
    let what = format!("Rust {version}");
    let toolchain = format!("+{version}");
    if !works(&mut project.cargo(&[&toolchain, "--version"])) {
        let mut install = project.command("rustup");
        if succeed(install.args(["toolchain", "install", &version, "--profile", "minimal"])).is_err() {
            return Ok(Outcome::not_checked(&what, "rustup cannot install that toolchain"));
        }
    }
    // A folder of its own: the everyday one would be built anew after each change of compiler.
    let mut check =
        project.cargo(&[&toolchain, "check", "--locked", "--package", "anemeter", "--all-targets"]);
    succeed(check.env("CARGO_TARGET_DIR", project.target.join("msrv")))?;
    let done = format!("{what} builds the program and its tests");
    println!("msrv: {done}");
    Ok(Outcome::Checked(done))
}

fn promised(manifest: &str) -> Result<String> {
    let manifest: Manifest = toml::from_str(manifest).context("Cargo.toml promises no rust-version")?;
    Ok(manifest.workspace.package.rust_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promise_is_read_from_the_manifest() {
        assert_eq!(promised("[workspace.package]\nrust-version = \"1.89\"\n").unwrap(), "1.89");
        assert!(promised("[workspace.package]\nedition = \"2024\"\n").is_err());
    }
}
