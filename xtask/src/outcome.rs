//! What a check came to, and how a check that could not be made is announced.

use anyhow::{Result, bail};

/// A check that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was made; the text says how much was checked.
    Checked(String),
    /// It could not be made here, for this reason. Never presented as a pass.
    NotChecked(String),
}

/// A failure that has been shown already, because something else has to be the last line.
#[derive(Debug)]
pub(crate) struct Shown;

impl Shown {
    /// Shows an error, then the last line.
    pub(crate) fn before(last_line: &str, error: &anyhow::Error) -> anyhow::Error {
        eprintln!("error: {error:#}");
        println!("{last_line}");
        Shown.into()
    }
}

impl std::error::Error for Shown {}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("failed")
    }
}

impl Outcome {
    /// Announces a check that could not be made, so that nobody overlooks it.
    pub(crate) fn not_checked(what: &str, why: &str) -> Outcome {
        let text = format!("{what}: {why}");
        eprint!("{}", framed(&format!("NOT CHECKED: {text}")));
        Outcome::NotChecked(text)
    }

    /// Makes the parts of a task, all of them even if one fails. A part that could not be checked makes the whole so.
    pub(crate) fn of_parts<F>(
        task: &str,
        parts: impl IntoIterator<Item = (&'static str, F)>,
    ) -> Result<Outcome>
    where
        F: FnOnce() -> Result<Outcome>,
    {
        let (mut done, mut missing, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (part, run) in parts {
            println!("\n-- {task} {part} --");
            match run() {
                Ok(Outcome::Checked(text)) => {
                    println!("{text}");
                    done.push(text);
                }
                Ok(Outcome::NotChecked(why)) => missing.push(why),
                Err(error) => {
                    eprintln!("error: {error:#}");
                    failed.push(part);
                }
            }
        }
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(" "));
        }
        if !missing.is_empty() {
            return Ok(Outcome::NotChecked([missing, done].concat().join("; ")));
        }
        Ok(Outcome::Checked(done.join("; ")))
    }
}

fn framed(text: &str) -> String {
    let width = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let bar = "*".repeat(width + 4);
    let body: String = text.lines().map(|line| format!("* {line:<width$} *\n")).collect();
    format!("\n{bar}\n{body}{bar}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_decides_for_the_whole() {
        let run = |second: fn() -> Result<Outcome>| {
            let first: fn() -> Result<Outcome> = || Ok(Outcome::Checked("5 files".into()));
            Outcome::of_parts("task", [("--first", first), ("--second", second)])
        };
        let both = run(|| Ok(Outcome::Checked("7 lines".into())));
        assert_eq!(both.unwrap(), Outcome::Checked("5 files; 7 lines".into()));
        let missing = run(|| Ok(Outcome::NotChecked("no tool".into())));
        assert_eq!(missing.unwrap(), Outcome::NotChecked("no tool; 5 files".into()));
        assert_eq!(run(|| bail!("torn")).unwrap_err().to_string(), "failed: --second");
    }

    #[test]
    fn a_frame_fits_its_longest_line() {
        assert_eq!(framed("ab\nc"), "\n******\n* ab *\n* c  *\n******\n\n");
    }
}
