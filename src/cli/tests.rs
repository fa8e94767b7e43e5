//! The command line as a whole: what its help promises is what it takes.

use clap::CommandFactory;

use super::*;

/// Every command that people see, with the commands of commands.
fn commands() -> Vec<clap::Command> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut waiting = vec![program];
    let mut found = Vec::new();
    while let Some(command) = waiting.pop() {
        waiting.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        found.push(command);
    }
    found
}

/// The words of a line as a shell takes them, up to a pipe or a redirection.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quote, mut was_quoted) = (None, false);
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => (quote, was_quoted) = (Some(c), true),
            (Some(open), _) if c == open => quote = None,
            (None, '|' | '>') => break,
            (None, ' ') => {
                words.push(String::new());
                was_quoted = false;
            }
            _ => words.last_mut().unwrap().push(c),
        }
    }
    if words.last().is_some_and(|word| word.is_empty() && !was_quoted) {
        words.pop();
    }
    words
}

fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    help.lines().filter_map(|line| line.strip_prefix("  anemeter ")).map(ToOwned::to_owned).collect()
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_examples_and_every_example_parses() {
    for command in commands() {
        let name = command.get_display_name().unwrap_or("anemeter").to_owned();
        let own = examples(&command);
        let below_has_them = name.contains("baselines-") || name.contains("cache-");
        assert!(!own.is_empty() || below_has_them, "`{name}` shows no example");
        for example in own {
            let line = format!("anemeter {example}");
            if let Err(error) = Cli::try_parse_from(words(&line)) {
                panic!("`{line}` does not parse: {error}");
            }
        }
    }
}

#[test]
fn the_words_of_a_line_are_those_of_a_shell() {
    assert_eq!(words("a 'b c' --d \"\" | less"), ["a", "b c", "--d", ""]);
    assert_eq!(words("a b > c"), ["a", "b"]);
}

#[test]
fn every_option_says_what_it_does() {
    for command in commands() {
        let silent: Vec<&str> = command
            .get_arguments()
            .filter(|argument| argument.get_help().is_none())
            .map(|argument| argument.get_id().as_str())
            .collect();
        assert!(silent.is_empty(), "`{}`: {silent:?}", command.get_name());
    }
}

#[test]
fn every_flag_of_a_remedy_exists() {
    use crate::advice::Remedy;
    let wanted = crate::vocabulary::KvForm::State;
    let remedies = [
        Remedy::AcceptRegression,
        Remedy::AcceptOtherMeasurement,
        Remedy::AllowCrossHardware,
        Remedy::CommonWorkload,
        Remedy::Export,
        Remedy::ExportKvForm { wanted, has: Vec::new() },
        Remedy::GiveTokenIds,
        Remedy::ListRules,
        Remedy::ListWeights,
        Remedy::MeasureMoreLaunches,
        Remedy::MeasureUnslowed,
        Remedy::MoreLoadTime,
        Remedy::NewBaseline,
        Remedy::OtherComputeUnits,
        Remedy::OtherKvForm,
        Remedy::Overwrite,
        Remedy::RawPrompt,
        Remedy::SameProfiles,
        Remedy::TrainedSeqLens,
        Remedy::Verify,
    ];
    let commands = commands();
    let flags: Vec<&str> =
        commands.iter().flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long).collect();
    for remedy in remedies {
        let phrase = exit::phrase(&remedy);
        let words = phrase.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let named: Vec<&str> = words.filter_map(|word| word.strip_prefix("--")).collect();
        assert!(phrase.contains(" -o ") || !named.is_empty(), "{phrase}");
        assert!(named.iter().all(|flag| flags.contains(flag)), "{phrase}");
        assert!(!remedy.to_string().contains("--"), "{remedy}");
    }
}
