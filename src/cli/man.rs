//! `anemeter man`: manual pages, made from the same text as `--help`.

use std::io;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_mangen::Man;

use super::output::{create_folder, write_file};
use super::{Cli, Failure, Output, Result, Status};

/// Print the manual page of the program, or write the pages of all commands.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  anemeter man | man -l -\n  anemeter man -o ~/.local/share/man/man1")]
pub(super) struct Args {
    /// Folder for one page per command [default: the page of the program, to standard output].
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

struct Page {
    file: String,
    text: Vec<u8>,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let pages = pages().map_err(|e| Failure::bad_input(format!("manual pages: {e}")))?;
    let Some(folder) = &args.out else {
        if let Some(page) = pages.first() {
            output.document(String::from_utf8_lossy(&page.text))?;
        }
        return Ok(Status::Good);
    };
    create_folder(folder)?;
    for page in pages {
        let path = folder.join(page.file);
        write_file(&path, &page.text)?;
        output.line(path.display())?;
    }
    Ok(Status::Good)
}

/// The program's page, then one for every command and every command of a command.
fn pages() -> io::Result<Vec<Page>> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut commands = vec![program];
    let mut pages = Vec::new();
    while let Some(command) = commands.pop() {
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut below: Vec<clap::Command> = shown.cloned().collect();
        below.reverse();
        commands.extend(below);
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let mut text = Vec::new();
        Man::new(command).render(&mut text)?;
        pages.push(Page { file: format!("{name}.1"), text });
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_workers_have_none() {
        let pages = pages().unwrap();
        let files: Vec<&str> = pages.iter().map(|page| page.file.as_str()).collect();
        assert_eq!(files[0], "anemeter.1");
        for expected in ["anemeter-export.1", "anemeter-baselines.1", "anemeter-baselines-log.1"] {
            assert!(files.contains(&expected), "{expected} is not in {files:?}");
        }
        assert!(!files.iter().any(|file| file.contains("worker") || file.contains("help")), "{files:?}");
        for page in &pages {
            let text = String::from_utf8(page.text.clone()).unwrap();
            let head = format!(".TH {} 1", page.file.trim_end_matches(".1"));
            assert!(text.contains(&head) && text.contains(".SH SYNOPSIS"), "{text}");
        }
    }
}
