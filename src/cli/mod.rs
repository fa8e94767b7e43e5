//! The command line: the only place that prints.

mod adopt;
mod baselines;
mod bench;
mod bless;
mod cache;
mod choice;
mod compare;
mod completions;
mod compress;
mod doctor;
mod embed;
mod eval;
mod exit;
mod export;
mod gate;
mod generate;
mod history;
mod inputs;
mod inspect;
mod interrupt;
mod lint;
mod man;
mod output;
mod python;
mod quickstart;
mod record;
mod report;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod shrunk;
mod table;
mod threads;
mod units;
mod verbosity;
mod verify;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use clap::{CommandFactory, Parser, Subcommand};
use log::{info, warn};

use exit::Result;
pub use exit::{Failure, Status};
use output::Output;
use verbosity::Verbosity;

/// Core ML export and Apple Neural Engine benchmarking.
#[derive(Parser)]
#[command(name = "anemeter", version, about, after_help = exit::help(), max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    verbosity: Verbosity,
}

#[derive(Subcommand)]
enum Command {
    Adopt(adopt::Args),
    Baselines(baselines::Args),
    Bench(bench::Args),
    Bless(bless::Args),
    Cache(cache::Args),
    Compare(compare::Args),
    Doctor(doctor::Args),
    Embed(embed::Args),
    Eval(eval::Args),
    Export(export::Args),
    Gate(gate::Args),
    Generate(generate::Args),
    History(history::Args),
    Compress(compress::Args),
    Completions(completions::Args),
    Inspect(inspect::Args),
    Lint(lint::Args),
    Man(man::Args),
    Quickstart(quickstart::Args),
    Report(report::Args),
    Run(run::Args),
    #[cfg(feature = "serve")]
    Serve(serve::Args),
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
    cli.verbosity.set();
    table::fit_to_terminal();
    threads::bound_environment();
    info!("anemeter {} on {}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    // A worker is ended with whoever started it and has nothing to leave behind.
    if !matches!(cli.command, Command::Worker(_))
        && let Err(error) = interrupt::watch()
    {
        warn!("an interrupt will leave unfinished files to the next command: {error}");
    }
    let began = Instant::now();
    let mut output = Output::stdout();
    let result = cli.command.run(&mut output).and_then(|status| output.flush().map(|()| status));
    interrupt::yield_to_it();
    info!("done after {:.3} s", began.elapsed().as_secs_f64());
    match result {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}

impl Command {
    fn run(&self, output: &mut Output) -> Result<Status> {
        match self {
            Command::Adopt(args) => adopt::run(args, output),
            Command::Baselines(args) => baselines::run(args, output),
            Command::Bench(args) => bench::run(args, output),
            Command::Bless(args) => bless::run(args, output),
            Command::Cache(args) => cache::run(args, output),
            Command::Compare(args) => compare::run(args, output),
            Command::Doctor(args) => doctor::run(args, output),
            Command::Embed(args) => embed::run(args, output),
            Command::Eval(args) => eval::run(args, output),
            Command::Export(args) => export::run(args, output),
            Command::Gate(args) => gate::run(args, output),
            Command::Generate(args) => generate::run(args, output),
            Command::History(args) => history::run(args, output),
            Command::Compress(args) => compress::run(args, output),
            Command::Completions(args) => completions::run(args, output),
            Command::Inspect(args) => inspect::run(args, output),
            Command::Lint(args) => lint::run(args, output),
            Command::Man(args) => man::run(args, output),
            Command::Quickstart(args) => quickstart::run(args, output),
            Command::Report(args) => report::run(args, output),
            Command::Run(args) => run::run(args, output),
            #[cfg(feature = "serve")]
            Command::Serve(args) => serve::run(args, output),
            Command::Verify(args) => verify::run(args, output),
            Command::Worker(args) => worker::run(args),
        }
    }
}

#[cfg(test)]
mod tests;
