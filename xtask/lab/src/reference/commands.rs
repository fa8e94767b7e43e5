//! Commands and their flags.

use std::fmt::Write;

use anyhow::Result;
use clap::{Arg, Command};

use super::{Page, cell};

pub(super) const PAGE: Page = Page {
    name: "commands.md",
    title: "Commands",
    source: "the command line in src/cli/",
    body: |_| {
        let mut program = anemeter::cli::command();
        program.build();
        let mut text = String::from(
            "`anemeter COMMAND --help` prints the same. Every command ends with one of the [exit codes](exit-codes.md).\n\n",
        );
        for command in listed(&program) {
            let name = command.get_name();
            writeln!(text, "- [`{name}`](#anemeter-{name}): {}", about(command))?;
        }
        for command in listed(&program) {
            section(command, "anemeter", &mut text)?;
        }
        Ok(text)
    },
};

fn listed(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn about(command: &Command) -> String {
    command.get_about().map(|about| cell(&about.to_string())).unwrap_or_default()
}

fn section(command: &Command, parent: &str, text: &mut String) -> Result<()> {
    let name = format!("{parent} {}", command.get_name());
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    let long = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    write!(text, "\n## {name}\n\n{}\n\n```text\n{}\n```\n", long.trim(), usage.join("\n"))?;
    let arguments: Vec<&Arg> = command.get_arguments().filter(|arg| is_listed(arg)).collect();
    if !arguments.is_empty() {
        *text += "\n| argument | meaning |\n|---|---|\n";
        for arg in arguments {
            writeln!(text, "| `{}` | {} |", spelled(arg), cell(&meaning(arg)))?;
        }
    }
    if let Some(after) = command.get_after_help() {
        *text += &remarks(&after.to_string());
    }
    for command in listed(command) {
        section(command, &name, text)?;
    }
    Ok(())
}

fn is_listed(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

/// How an argument is typed.
fn spelled(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let names = arg.get_value_names().filter(|_| takes_value).unwrap_or_default();
    let mut value: Vec<String> = names.iter().map(|name| name.to_uppercase()).collect();
    if arg.get_num_args().is_some_and(|count| count.max_values() > names.len().max(1)) {
        value.push("…".to_owned());
    }
    let value = value.join(" ");
    let flags = [arg.get_short().map(|c| format!("-{c}")), arg.get_long().map(|long| format!("--{long}"))];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    match (flags.is_empty(), value.is_empty()) {
        (true, _) => value,
        (false, true) => flags.join(", "),
        (false, false) => format!("{} {value}", flags.join(", ")),
    }
}

fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && arg.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() && !arg.is_hide_possible_values_set() {
        text = format!("{}. One of {}.", text.trim_end_matches('.'), values.join(", "));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set() {
        text = format!("{}. Default: `{}`.", text.trim_end_matches('.'), defaults.join(","));
    }
    text
}

/// What follows the flags in `--help`: paragraphs, and examples where lines are indented.
fn remarks(after: &str) -> String {
    let mut text = String::new();
    let mut in_code = false;
    for line in after.lines() {
        let is_code = line.starts_with("  ");
        if is_code != in_code {
            text += if is_code { "\n```sh\n" } else { "```\n" };
            in_code = is_code;
        } else if !is_code {
            text += "\n";
        }
        text += line.trim();
        text += "\n";
    }
    if in_code {
        text += "```\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_spelled_as_they_are_typed() {
        let command = Command::new("x")
            .arg(Arg::new("out").short('o').long("out").value_name("DIR"))
            .arg(Arg::new("all").long("all").action(clap::ArgAction::SetTrue))
            .arg(Arg::new("report").value_name("REPORT").num_args(1..));
        let mut command = command;
        command.build();
        let spelled: Vec<String> =
            command.get_arguments().filter(|arg| is_listed(arg)).map(spelled).collect();
        assert_eq!(spelled, ["-o, --out DIR", "--all", "REPORT …"]);
    }

    #[test]
    fn indented_lines_are_code() {
        let text = remarks("One thing.\n\nExamples:\n  anemeter a\n  anemeter b");
        assert_eq!(text, "\nOne thing.\n\n\n\nExamples:\n\n```sh\nanemeter a\nanemeter b\n```\n");
    }
}
