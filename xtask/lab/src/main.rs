//! The laboratory: benches, checks against other programs, training, simulation, the reference of the documentation.
//!
//! `cargo xtask` builds and starts it. One file or folder per task and one line in a table: [`TASKS`],
//! [`bench::TASKS`], [`check::TASKS`]; `xtask/src/lab.rs` describes each.

mod bench;
mod browser;
mod busy;
mod check;
mod fetch_smollm2;
mod fuzz_seeds;
mod gate_power;
mod instruction_sets;
mod made_up;
#[path = "../../../tests/it/support/compile.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "shared with the tests, which use all of it")]
mod mil_compiler;
#[path = "../../../tests/it/support/for_packages.rs"]
mod mil_packages;
mod python;
mod reference;
mod tiny_checkpoints;
mod train;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pico_args::Arguments;

use xtask::outcome::{OUTCOME_FLAG, Outcome};
use xtask::project::Project;

/// What a task is called, after the name of its group, and what it does.
type Task = (&'static str, fn(&Project, Arguments) -> Result<Outcome>);

/// Tasks without a group.
const TASKS: &[Task] = &[
    ("fetch-smollm2", fetch_smollm2::run),
    ("fuzz-seeds", fuzz_seeds::run),
    ("gate-power", gate_power::run),
    ("instruction-sets", instruction_sets::run),
    ("reference", reference::run),
    ("tiny-checkpoints", tiny_checkpoints::run),
    ("train", train::run),
];

const GROUPS: &[(&str, &[Task])] = &[("bench", bench::TASKS), ("check", check::TASKS)];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_env();
    let file: Option<PathBuf> = arguments.opt_value_from_str(OUTCOME_FLAG).unwrap_or_default();
    let result = run(arguments);
    if let Err(error) = &result {
        eprintln!("error: {error:#}");
    }
    if let Some(file) = file
        && let Err(error) = fs::write(&file, Outcome::told(&result))
    {
        eprintln!("error: write {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(mut arguments: Arguments) -> Result<Outcome> {
    let mut word = || arguments.subcommand()?.context("the laboratory is started by `cargo xtask`");
    let first = word()?;
    let (tasks, name) = match GROUPS.iter().find(|group| group.0 == first) {
        Some(group) => (group.1, word()?),
        None => (TASKS, first),
    };
    let task = tasks.iter().find(|task| task.0 == name);
    let (_, run) = task.with_context(|| format!("the laboratory has no task `{name}`"))?;
    run(&Project::find()?, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::task::{self, Run};

    fn described(tasks: &'static [task::Task]) -> Vec<&'static str> {
        tasks.iter().filter(|task| matches!(task.run, Run::InLab)).map(|task| task.name).collect()
    }

    fn names(tasks: &[Task]) -> Vec<&'static str> {
        tasks.iter().map(|task| task.0).collect()
    }

    #[test]
    fn every_task_is_described_and_every_description_has_its_task() {
        assert_eq!(names(TASKS), described(task::TASKS));
        for group in task::GROUPS {
            let ours = GROUPS.iter().find(|ours| ours.0 == group.name).expect(group.name);
            assert_eq!(names(ours.1), described(group.tasks), "{}", group.name);
        }
        assert_eq!(GROUPS.len(), task::GROUPS.len());
    }
}
