//! Project tasks: `cargo xtask TASK`. One file per task, and one line per task in [`task::TASKS`] or in a group.
//!
//! This crate builds in seconds: what needs the anemeter library or heavier dependencies is in the laboratory
//! (`xtask/lab/`), which [`lab`] describes and starts.

mod bless;
mod book;
mod ci;
mod crates;
mod deny;
mod dist;
pub mod fuzz;
mod guides;
pub mod lab;
pub mod markdown;
mod median;
mod metadata;
mod msrv;
pub mod outcome;
pub mod process;
pub mod project;
pub mod record;
pub mod sanitize;
pub mod shown;
pub mod task;
pub mod test;
mod tidy;
pub mod tree;
mod workflows;

use std::process::ExitCode;

use anyhow::{Result, bail};
use pico_args::Arguments;

pub use median::median;
use outcome::{Outcome, Shown};
use project::Project;

/// Runs the task that the command line names.
pub fn main() -> ExitCode {
    match run(Arguments::from_env()) {
        Ok(code) => code,
        Err(error) => {
            if !error.is::<Shown>() {
                eprintln!("error: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: Arguments) -> Result<ExitCode> {
    let help = arguments.contains(["-h", "--help"]);
    let mut words = Vec::new();
    while let Some(word) = if task::is_whole(&words) { None } else { arguments.subcommand()? } {
        words.push(word);
    }
    let Some(task) = task::find(&words)? else {
        print!("{}", task::help(words.first().map(String::as_str)));
        return Ok(if help { ExitCode::SUCCESS } else { ExitCode::from(2) });
    };
    if help {
        println!("cargo xtask {} {}\n\n{}", words.join(" "), task.arguments, task.about);
        return Ok(ExitCode::SUCCESS);
    }
    if task.arguments.is_empty() {
        finish(arguments.clone())?;
    }
    Ok(match task.run(&Project::find()?, &words, arguments)? {
        Outcome::Checked(_) => ExitCode::SUCCESS,
        Outcome::NotChecked(_) => ExitCode::from(task.not_checked),
    })
}

/// Refuses whatever a task did not take.
pub fn finish(arguments: Arguments) -> Result<()> {
    let rest = arguments.finish();
    if let Some(first) = rest.first() {
        bail!("`{}` is not an argument of this task", first.to_string_lossy());
    }
    Ok(())
}
