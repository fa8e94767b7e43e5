//! `cargo xtask check docs`: the documentation against the library: its reference, and every command it shows.

use anyhow::{Result, bail};
use clap::error::ErrorKind;
use pico_args::Arguments;

use crate::reference;
use xtask::outcome::Outcome;
use xtask::project::Project;
use xtask::shown::{self, is_placeholder};
use xtask::tree::{File, read_files};

pub(crate) fn run(project: &Project, _: Arguments) -> Result<Outcome> {
    let files = read_files(project)?;
    let (refused, count) = refusals(&files);
    let findings = [refused, reference::stale(project)?].concat();
    for finding in &findings {
        eprintln!("docs: {finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    let done = format!("{count} commands, {} pages of the reference", reference::count());
    println!("docs: {done}, nothing to complain about");
    Ok(Outcome::Checked(done))
}

/// Commands that the program refuses, and how many it was asked about.
fn refusals(files: &[File]) -> (Vec<String>, usize) {
    let (commands, mut findings) = shown::commands(files);
    let mut count = 0;
    for command in commands {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        let (["anemeter", arguments @ ..] | ["cargo", "run", "--release", "--", arguments @ ..]) = &words[..]
        else {
            continue;
        };
        count += 1;
        findings.extend(refusal(arguments, command.is_span).map(|why| format!("{}: {why}", command.place)));
    }
    (findings, count)
}

/// Asks the command line of the program itself. A paragraph may write `COMMAND` for any command, and `a|b` for either.
fn refusal(arguments: &[&str], is_span: bool) -> Option<String> {
    if is_span && arguments.first().is_some_and(|word| is_placeholder(word)) {
        return None;
    }
    let either =
        |word: &&'_ str| if is_span { word.split('|').next().unwrap_or_default() } else { word }.to_owned();
    let arguments = std::iter::once("anemeter".to_owned()).chain(arguments.iter().map(either));
    let error = anemeter::cli::command().try_get_matches_from(arguments).err()?;
    let is_wrong = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => false,
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => true,
        _ => !is_span,
    };
    let text = error.to_string();
    is_wrong.then(|| text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Vec<String> {
        refusals(&[File { path: "a.md".to_owned(), text: text.to_owned() }]).0
    }

    #[test]
    fn commands_that_are_taken_pass() {
        for text in [
            "    anemeter gate reports/a --format junit > gate.xml   # for a CI",
            "    anemeter bench b --out r && anemeter gate r",
            "```console\n$ anemeter doctor\nanything\n```",
            "`anemeter bench --slow-down PERCENT` and `anemeter bench`",
            "    cargo run --release -- quickstart",
            "`anemeter COMMAND --help`, `anemeter baselines log|show|verify`",
        ] {
            assert_eq!(refused(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn commands_that_are_refused_are_named() {
        for (text, why) in [
            ("    anemeter gaet reports/a", "unrecognized subcommand 'gaet'"),
            ("    anemeter gate reports/a --formt md", "unexpected argument '--formt' found"),
            ("    anemeter gate", "the following required arguments were not provided:"),
            ("    anemeter doctor && anemeter gate r --no", "unexpected argument '--no' found"),
            ("`anemeter lint --explian A10`", "unexpected argument '--explian' found"),
        ] {
            assert_eq!(refused(text), [format!("a.md:1: {why}")]);
        }
    }

    #[test]
    fn the_program_takes_every_command_of_the_documentation() {
        let files = read_files(&Project::find().unwrap()).unwrap();
        assert_eq!(refusals(&files).0, Vec::<String>::new());
    }
}
