//! Project tasks: `cargo xtask COMMAND`. One file per command, one line per command in [`COMMANDS`].

mod bench_compress;
mod bench_decode;
mod bench_export;
mod bench_history;
mod bench_overhead;
mod bench_package;
mod bench_peers;
mod bench_quality;
mod bless;
mod browser;
mod ci;
mod conformance;
mod deny;
mod dist;
mod docs;
mod fetch_smollm2;
mod fuzz;
mod gate_power;
mod guides;
mod mac_smoke;
mod made_up;
mod markdown;
mod msrv;
mod outcome;
mod process;
mod project;
mod python;
mod quickstart;
mod record;
mod sanitize;
mod smollm2;
mod test;
mod test_coreml;
mod test_remote;
mod tidy;
mod tiny_checkpoints;
mod train;
mod workflows;

use std::process::ExitCode;

use anyhow::{Result, bail};
use pico_args::Arguments;

use outcome::{Outcome, Shown};
use project::Project;

/// One task.
struct Command {
    name: &'static str,
    /// Its arguments, as `--help` shows them; where there are none, none are taken.
    arguments: &'static str,
    about: &'static str,
    /// Exit status when what it checks is not available on this machine.
    not_checked: u8,
    run: fn(&Project, Arguments) -> Result<Outcome>,
}

const COMMANDS: &[Command] = &[
    bench_compress::COMMAND,
    bench_decode::COMMAND,
    bench_export::COMMAND,
    bench_history::COMMAND,
    bench_overhead::COMMAND,
    bench_package::COMMAND,
    bench_peers::COMMAND,
    bench_quality::COMMAND,
    bless::COMMAND,
    ci::COMMAND,
    conformance::COMMAND,
    deny::COMMAND,
    dist::COMMAND,
    docs::COMMAND,
    fetch_smollm2::COMMAND,
    fuzz::COMMAND,
    gate_power::COMMAND,
    guides::COMMAND,
    mac_smoke::COMMAND,
    msrv::COMMAND,
    quickstart::COMMAND,
    sanitize::COMMAND,
    smollm2::COMMAND,
    test::COMMAND,
    test_coreml::COMMAND,
    test_remote::COMMAND,
    tidy::COMMAND,
    tiny_checkpoints::COMMAND,
    train::COMMAND,
    workflows::COMMAND,
];

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            if !error.is::<Shown>() {
                eprintln!("error: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut arguments = Arguments::from_env();
    let help = arguments.contains(["-h", "--help"]);
    let Some(name) = arguments.subcommand()? else {
        print!("{}", help_text());
        return Ok(if help { ExitCode::SUCCESS } else { ExitCode::from(2) });
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        bail!("there is no task `{name}`\nhelp: `cargo xtask --help` lists the tasks");
    };
    if help {
        println!("cargo xtask {} {}\n\n{}", command.name, command.arguments, command.about);
        return Ok(ExitCode::SUCCESS);
    }
    if command.arguments.is_empty() {
        finish(arguments.clone())?;
    }
    Ok(match (command.run)(&Project::find()?, arguments)? {
        Outcome::Checked(_) => ExitCode::SUCCESS,
        Outcome::NotChecked(_) => ExitCode::from(command.not_checked),
    })
}

fn help_text() -> String {
    let mut text = String::from("cargo xtask COMMAND [ARGUMENTS]\n\n");
    for command in COMMANDS {
        text += &format!("  {:<16} {}\n", command.name, command.about);
    }
    text + "\n`cargo xtask COMMAND --help` shows a command's arguments.\n"
}

/// Refuses whatever a command did not take.
fn finish(arguments: Arguments) -> Result<()> {
    let rest = arguments.finish();
    if let Some(first) = rest.first() {
        bail!("`{}` is not an argument of this task", first.to_string_lossy());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_described() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        assert!(COMMANDS.iter().all(|command| !command.about.is_empty()));
        assert!(help_text().contains("tidy"));
    }
}
