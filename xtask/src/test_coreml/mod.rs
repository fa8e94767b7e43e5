//! `cargo xtask test-coreml`: the Core ML module, executed on Linux against the stand-in of `tests/coreml-standin/`.

mod mutants;
mod valgrind;

use std::env::consts::OS;
use std::path::Path;
use std::process::Command as Process;

use anyhow::Result;
use pico_args::Arguments;

use crate::Command;
use crate::fetch_smollm2::{Fetched, fetch};
use crate::outcome::Outcome;
use crate::process::succeed;
use crate::project::Project;
use crate::test::Report;

pub(crate) const COMMAND: Command = Command {
    name: "test-coreml",
    arguments: "[--tests] [--valgrind] [--smollm2] [--mutants [NAME]]",
    about: "the Core ML module on Linux: tests, Valgrind and SmolLM2; or faults in the module, each of which must be caught",
    not_checked: 77,
    run,
};

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

fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    if arguments.contains("--mutants") {
        let name = arguments.opt_free_from_str::<String>()?;
        crate::finish(arguments)?;
        return mutants::run(project, name.as_deref());
    }
    let named: Vec<&Part> = PARTS.iter().filter(|part| arguments.contains(part.flag)).collect();
    crate::finish(arguments)?;
    make(project, if named.is_empty() { PARTS.iter().collect() } else { named })
}

/// Every part.
pub(crate) fn check(project: &Project) -> Result<Outcome> {
    make(project, PARTS.iter().collect())
}

fn make(project: &Project, parts: Vec<&Part>) -> Result<Outcome> {
    if OS != "linux" {
        return Ok(Outcome::not_checked(WHAT, &format!("the stand-in runs on Linux, this is {OS}")));
    }
    Outcome::of_parts("test-coreml", parts.into_iter().map(|part| (part.flag, || (part.run)(project))))
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
    let optimised = ["--config", "profile.dev.package.anemeter.opt-level=1"];
    let arguments = [&["test", "--test", "it"], &optimised[..], &["--", "--ignored", "smollm2"]].concat();
    let mut command = cargo(project, &project.root, &arguments);
    let mut report = Report::default();
    report.watch(command.env("COREML_STANDIN_SMOLLM2", model), "cargo test smollm2")?;
    report.verdict()?;
    Ok(Outcome::Checked("SmolLM2 in the forms io and state, the same tokens as the CPU runtime".to_owned()))
}
