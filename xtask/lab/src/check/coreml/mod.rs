//! `cargo xtask check coreml`: the Core ML module, executed on Linux against the stand-in of `tests/coreml-standin/`.

mod mutants;
mod valgrind;

use std::env::consts::OS;
use std::path::Path;
use std::process::Command as Process;

use anyhow::Result;
use pico_args::Arguments;

use crate::fetch_smollm2::{Fetched, fetch};
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;
use xtask::test::Report;

/// The stand-in, a package of its own.
const PACKAGE: &str = "tests/coreml-standin";
const WHAT: &str = "the Core ML module";

/// One part of the check.
struct Part {
    flag: &'static str,
    run: fn(&Project) -> Result<Outcome>,
}

const PARTS: &[Part] = &[
    Part { flag: "--tests", run: tests },
    Part { flag: "--valgrind", run: valgrind::run },
    Part { flag: "--smollm2", run: smollm2 },
];

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    if arguments.contains("--mutants") {
        let name = arguments.opt_free_from_str::<String>()?;
        xtask::finish(arguments)?;
        return mutants::run(project, name.as_deref());
    }
    let named: Vec<&Part> = PARTS.iter().filter(|part| arguments.contains(part.flag)).collect();
    xtask::finish(arguments)?;
    let parts = if named.is_empty() { PARTS.iter().collect() } else { named };
    if OS != "linux" {
        return Ok(Outcome::not_checked(WHAT, &format!("the stand-in runs on Linux, this is {OS}")));
    }
    Outcome::of_parts("coreml", parts.into_iter().map(|part| (part.flag, || (part.run)(project))))
}

/// A cargo command in the stand-in's package below `root`, which has its own settings for the compiler.
fn cargo(project: &Project, root: &Path, arguments: &[&str]) -> Process {
    let mut command = project.cargo(arguments);
    command.current_dir(root.join(PACKAGE)).env("CARGO_TARGET_DIR", project.target.join("coreml"));
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER"] {
        command.env_remove(variable);
    }
    command
}

/// The lints and every test that needs nothing from elsewhere.
fn tests(project: &Project) -> Result<Outcome> {
    succeed(&mut cargo(project, &project.root, &["fmt", "--check"]))?;
    succeed(&mut cargo(project, &project.root, &["clippy", "--all-targets", "--", "-D", "warnings"]))?;
    let mut report = Report::default();
    report.watch(&mut cargo(project, &project.root, &["test", "--no-fail-fast"]), "cargo test")?;
    Ok(Outcome::Checked(report.verdict()?))
}

/// A real model; its kernels have to be optimised.
fn smollm2(project: &Project) -> Result<Outcome> {
    let model = match fetch(project)? {
        Fetched::There(path) => path,
        Fetched::NotAvailable(why) => return Ok(Outcome::not_checked("SmolLM2 in the Core ML module", &why)),
    };
    let crates = ["convert", "kernels", "mil", "runtime"];
    let optimised = crates.map(|name| format!("profile.dev.package.anemeter-{name}.opt-level=2"));
    let optimised = optimised.iter().flat_map(|setting| ["--config", setting]);
    let arguments =
        ["test", "--test", "it"].into_iter().chain(optimised).chain(["--", "--ignored", "smollm2"]);
    let arguments: Vec<&str> = arguments.collect();
    let mut command = cargo(project, &project.root, &arguments);
    let mut report = Report::default();
    report.watch(command.env("COREML_STANDIN_SMOLLM2", model), "cargo test smollm2")?;
    report.verdict()?;
    Ok(Outcome::Checked("SmolLM2 in the forms io and state, the same tokens as the CPU runtime".to_owned()))
}
