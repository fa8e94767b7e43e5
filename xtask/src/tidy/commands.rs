//! Tasks shown in the documentation are there, and take the flags that stand with them.
//!
//! What the program itself takes only its library knows: `cargo xtask check docs` asks it.

use crate::shown::{self, is_placeholder};
use crate::task::{self, GROUPS};
use crate::tree::File;

/// Finds tasks that are refused.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let (commands, mut findings) = shown::commands(files);
    for command in commands {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        if let ["cargo", "xtask", ref arguments @ ..] = words[..] {
            findings.extend(refusal(arguments).map(|why| format!("{}: {why}", command.place)));
        }
    }
    findings
}

fn refusal(arguments: &[&str]) -> Option<String> {
    let is_group = |name: &str| GROUPS.iter().any(|group| group.name == name);
    let count = if arguments.first().is_some_and(|name| is_group(name)) { 2 } else { 1 };
    let (name, rest) = arguments.split_at(count.min(arguments.len()));
    if name.iter().any(|word| word.starts_with('-') || is_placeholder(word)) {
        return None;
    }
    let task = match task::find(name) {
        Ok(task) => task?,
        Err(_) => return Some(format!("there is no task `{}`", name.join(" "))),
    };
    let flags = rest.iter().filter(|word| word.starts_with("--") && **word != "--help");
    let mut unknown = flags.filter(|flag| !task.arguments.contains(**flag));
    unknown.next().map(|flag| format!("the task `{}` has no `{flag}`", name.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::file;

    fn refused(text: &str) -> Vec<String> {
        check(&[file("a.md", text)])
    }

    #[test]
    fn commands_that_are_taken_pass() {
        for text in [
            "    cargo xtask tidy && cargo xtask check conformance --torch",
            "`cargo xtask COMMAND --help`, `cargo xtask bench WHAT`, `cargo xtask bench`",
            "`cargo xtask --help`, `anemeter anything`",
        ] {
            assert_eq!(refused(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn commands_that_are_refused_are_named() {
        for (text, why) in [
            ("    cargo xtask tset", "there is no task `tset`"),
            ("    cargo xtask conformance", "there is no task `conformance`"),
            ("`cargo xtask check peers`", "there is no task `check peers`"),
            ("    cargo xtask check conformance --troch", "the task `check conformance` has no `--troch`"),
        ] {
            assert_eq!(refused(text), [format!("a.md:1: {why}")]);
        }
    }
}
