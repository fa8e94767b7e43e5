//! Commands shown in the documentation: the program, or the task, takes them as they stand there.

use clap::error::ErrorKind;

use super::File;
use crate::COMMANDS;
use crate::markdown::{self, Code};

/// Finds commands that are refused. Those in paragraphs may be cut short, but what they name has to exist.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_markdown()) {
        for code in markdown::read(&file.text).code {
            let refused = refusals(&code).into_iter();
            findings.extend(refused.map(|why| format!("{}:{}: {why}", file.path, code.line)));
        }
    }
    findings
}

fn refusals(code: &Code) -> Vec<String> {
    let text = code.text.trim_start().trim_start_matches("$ ");
    let is_command = ["anemeter ", "cargo xtask ", "cargo run --release -- "];
    if !is_command.iter().any(|start| text.starts_with(start)) {
        return Vec::new();
    }
    let Some(words) = shlex::split(text) else { return vec![format!("`{text}` has an open quote")] };
    let commands = words.split(|word| matches!(word.as_str(), "&&" | "|" | "||" | ";"));
    commands.filter_map(|words| refusal(words, code.is_span)).collect()
}

fn refusal(words: &[String], is_span: bool) -> Option<String> {
    let end = words.iter().position(|word| word.starts_with('>') || word == "2>").unwrap_or(words.len());
    let words: Vec<&str> = words[..end].iter().map(String::as_str).collect();
    match words[..] {
        ["anemeter", ref arguments @ ..] | ["cargo", "run", "--release", "--", ref arguments @ ..] => {
            program(arguments, is_span)
        }
        ["cargo", "xtask", ref arguments @ ..] => task(arguments),
        _ => None,
    }
}

/// Asks the command line of the program itself. A paragraph may write `COMMAND` for any command, and `a|b` for either.
fn program(arguments: &[&str], is_span: bool) -> Option<String> {
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

fn task(arguments: &[&str]) -> Option<String> {
    let (name, rest) = arguments.split_first()?;
    if name.starts_with('-') || is_placeholder(name) {
        return None;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == *name) else {
        return Some(format!("there is no task `{name}`"));
    };
    let flags = rest.iter().filter(|word| word.starts_with("--") && **word != "--help");
    let mut unknown = flags.filter(|flag| !command.arguments.contains(**flag));
    unknown.next().map(|flag| format!("the task `{name}` has no `{flag}`"))
}

fn is_placeholder(word: &str) -> bool {
    word.chars().all(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn refused(text: &str) -> Vec<String> {
        check(&[file("a.md", text)])
    }

    #[test]
    fn commands_that_are_taken_pass() {
        for text in [
            "    anemeter gate reports/a --format junit > gate.xml   # for a CI",
            "    anemeter bench b --out r && anemeter gate r",
            "```console\n$ anemeter doctor\nanything\n```",
            "`anemeter bench --slow-down PERCENT` and `anemeter bench`",
            "    cargo run --release -- quickstart",
            "    cargo xtask conformance --torch",
            "`cargo xtask COMMAND --help`",
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
            ("    cargo xtask tset", "there is no task `tset`"),
            ("    cargo xtask conformance --troch", "the task `conformance` has no `--troch`"),
        ] {
            assert_eq!(refused(text), [format!("a.md:1: {why}")]);
        }
    }
}
