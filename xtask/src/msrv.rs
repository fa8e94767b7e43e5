//! `cargo xtask msrv`: the oldest compiler that the manifest promises builds the program.

use anyhow::{Context, Result};

use crate::metadata::{self, Package};
use crate::outcome::Outcome;
use crate::process::{succeed, works};
use crate::project::Project;
use crate::task::{Run, Task};

pub(crate) const TASK: Task = Task {
    name: "msrv",
    arguments: "",
    about: "check the program with the oldest compiler that Cargo.toml promises, which rustup installs",
    not_checked: 77,
    run: Run::Here(|project, _| check(project)),
};

/// The package that is shipped.
const PROGRAM: &str = "anemeter";

fn check(project: &Project) -> Result<Outcome> {
    let version = promised(metadata::workspace(project)?)?;
    let what = format!("Rust {version}");
    let toolchain = format!("+{version}");
    if !works(&mut project.cargo(&[&toolchain, "--version"])) {
        let mut install = project.command("rustup");
        if succeed(install.args(["toolchain", "install", &version, "--profile", "minimal"])).is_err() {
            return Ok(Outcome::not_checked(&what, "rustup cannot install that toolchain"));
        }
    }
    // A folder of its own: the everyday one would be built anew after each change of compiler.
    let mut check = project.cargo(&[
        &toolchain,
        "check",
        "--locked",
        "--workspace",
        "--all-targets",
        "--exclude",
        "xtask",
        "--exclude",
        "lab",
    ]);
    succeed(check.env("CARGO_TARGET_DIR", project.target.join("msrv")))?;
    let done = format!("{what} builds the program and its tests");
    println!("msrv: {done}");
    Ok(Outcome::Checked(done))
}

fn promised(packages: Vec<Package>) -> Result<String> {
    let program = packages.into_iter().find(|package| package.name == PROGRAM);
    program.and_then(|program| program.rust_version).context("Cargo.toml promises no rust-version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_promise_is_read_from_the_manifest() {
        let told = r#"{"packages": [{"name": "anemeter", "manifest_path": "/r/Cargo.toml", "rust_version": "1.89"}]}"#;
        let read = |told: &str| promised(metadata::parse(told, Path::new("/r")).unwrap());
        assert_eq!(read(told).unwrap(), "1.89");
        assert!(read(&told.replace("rust_version", "edition")).is_err());
    }
}
