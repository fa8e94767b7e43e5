//! The command line: the only place that prints.

mod baselines;
mod bench;
mod bless;
mod cache;
mod compare;
mod compress;
mod doctor;
mod eval;
mod exit;
mod export;
mod gate;
mod generate;
mod inspect;
mod lint;
mod output;
mod quickstart;
mod record;
mod report;
mod run;
mod table;
mod units;
#[cfg(feature = "oracle")]
mod verify;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub use exit::{Failure, Status};
use output::Output;

/// Core ML export and Apple Neural Engine benchmarking.
#[derive(Parser)]
#[command(name = "anemeter", version, about, after_help = exit::help(), max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Baselines(baselines::Args),
    Bench(bench::Args),
    Bless(bless::Args),
    Cache(cache::Args),
    Compare(compare::Args),
    Doctor(doctor::Args),
    Eval(eval::Args),
    Export(export::Args),
    Gate(gate::Args),
    Generate(generate::Args),
    Compress(compress::Args),
    Inspect(inspect::Args),
    Lint(lint::Args),
    Quickstart(quickstart::Args),
    Report(report::Args),
    Run(run::Args),
    #[cfg(feature = "oracle")]
    Verify(verify::Args),
    Worker(worker::Args),
}

/// Every command with its flags, as data: for whoever describes or checks command lines.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the arguments, runs the command and turns its outcome into an exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let status = if error.use_stderr() { Status::BadInput } else { Status::Good };
            let _ = error.print();
            return status.into();
        }
    };
    let mut output = Output::stdout();
    let result = match &cli.command {
        Command::Baselines(args) => baselines::run(args, &mut output),
        Command::Bench(args) => bench::run(args, &mut output),
        Command::Bless(args) => bless::run(args, &mut output),
        Command::Cache(args) => cache::run(args, &mut output),
        Command::Compare(args) => compare::run(args, &mut output),
        Command::Doctor(args) => doctor::run(args, &mut output),
        Command::Eval(args) => eval::run(args, &mut output),
        Command::Export(args) => export::run(args, &mut output),
        Command::Gate(args) => gate::run(args, &mut output),
        Command::Generate(args) => generate::run(args, &mut output),
        Command::Compress(args) => compress::run(args, &mut output),
        Command::Inspect(args) => inspect::run(args, &mut output),
        Command::Lint(args) => lint::run(args, &mut output),
        Command::Quickstart(args) => quickstart::run(args, &mut output),
        Command::Report(args) => report::run(args, &mut output),
        Command::Run(args) => run::run(args, &mut output),
        #[cfg(feature = "oracle")]
        Command::Verify(args) => verify::run(args, &mut output),
        Command::Worker(args) => worker::run(args),
    };
    let result = result.and_then(|status| output.flush().map(|()| status));
    match result {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}
