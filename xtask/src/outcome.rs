//! What a check came to, and how a check that could not be made is announced.

use anyhow::{Result, bail};

/// A check that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was made; the text says how much was checked.
    Checked(String),
    /// It could not be made here, for this reason. Never presented as a pass.
    NotChecked(String),
}

/// The argument of the laboratory that names the file in which it leaves what a task came to; not for users.
pub const OUTCOME_FLAG: &str = "--outcome";

const CHECKED: &str = "checked";
const NOT_CHECKED: &str = "not checked";
const FAILED: &str = "failed";

/// A failure that has been shown already: something else has to be the last line, or another process showed it.
#[derive(Debug)]
pub struct Shown(pub String);

impl Shown {
    /// Shows an error, then the last line.
    pub fn before(last_line: &str, error: &anyhow::Error) -> anyhow::Error {
        eprintln!("error: {error:#}");
        println!("{last_line}");
        Shown(format!("{error:#}")).into()
    }
}

impl std::error::Error for Shown {}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Outcome {
    /// A result as text, for the process that waits for it: a word on the first line, then what there is to say.
    pub fn told(result: &Result<Outcome>) -> String {
        match result {
            Ok(Outcome::Checked(text)) => format!("{CHECKED}\n{text}"),
            Ok(Outcome::NotChecked(text)) => format!("{NOT_CHECKED}\n{text}"),
            Err(error) => format!("{FAILED}\n{error:#}"),
        }
    }

    /// Reads such a text. A failure was shown where it happened.
    pub(crate) fn parse(told: &str) -> Result<Outcome> {
        let (word, text) = told.split_once('\n').unwrap_or((told, ""));
        match word {
            CHECKED => Ok(Outcome::Checked(text.to_owned())),
            NOT_CHECKED => Ok(Outcome::NotChecked(text.to_owned())),
            FAILED => Err(Shown(text.to_owned()).into()),
            other => bail!("a task came to `{other}`"),
        }
    }

    /// Announces a check that could not be made, so that nobody overlooks it.
    pub fn not_checked(what: &str, why: &str) -> Outcome {
        let text = format!("{what}: {why}");
        eprint!("{}", framed(&format!("NOT CHECKED: {text}")));
        Outcome::NotChecked(text)
    }

    /// Makes the parts of a task, all of them even if one fails. A part that could not be checked makes the whole so.
    pub fn of_parts<F>(task: &str, parts: impl IntoIterator<Item = (&'static str, F)>) -> Result<Outcome>
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
    fn results_survive_the_way_between_processes() {
        for outcome in [Outcome::Checked("5 files\nand more".into()), Outcome::NotChecked(String::new())] {
            assert_eq!(Outcome::parse(&Outcome::told(&Ok(outcome.clone()))).unwrap(), outcome);
        }
        let failed = Outcome::parse(&Outcome::told(&Err(anyhow::anyhow!("torn")))).unwrap_err();
        assert!(failed.is::<Shown>());
        assert_eq!(failed.to_string(), "torn");
        assert!(Outcome::parse("rubbish").is_err());
    }

    #[test]
    fn a_frame_fits_its_longest_line() {
        assert_eq!(framed("ab\nc"), "\n******\n* ab *\n* c  *\n******\n\n");
    }
}
