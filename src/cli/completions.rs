//! `anemeter completions`: completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Output, Result, Status};

/// Print the completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
anemeter completions bash > ~/.local/share/bash-completion/completions/anemeter\n  \
anemeter completions zsh > ~/.zfunc/_anemeter\n  \
anemeter completions fish > ~/.config/fish/completions/anemeter.fish")]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "anemeter", &mut script);
    output.document(String::from_utf8_lossy(&script))?;
    Ok(Status::Good)
}
