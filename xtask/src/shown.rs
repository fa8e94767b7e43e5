//! Commands that the documentation shows.

use crate::markdown::{self, Code};
use crate::tree::File;

/// How a command begins that can be checked.
const STARTS: &[&str] = &["anemeter ", "cargo xtask ", "cargo run --release -- "];

/// A command as it stands on a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// The page and the line.
    pub place: String,
    pub words: Vec<String>,
    /// Whether it stands in a paragraph, where it may be cut short, but what it names has to exist.
    pub is_span: bool,
}

/// Every command of every page, and what cannot be one.
pub fn commands(files: &[File]) -> (Vec<Command>, Vec<String>) {
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    for file in files.iter().filter(|file| file.is_markdown()) {
        for code in markdown::read(&file.text).code {
            let place = format!("{}:{}", file.path, code.line);
            match words(&code) {
                Ok(commands) => found.extend(commands.into_iter().map(|words| Command {
                    place: place.clone(),
                    words,
                    is_span: code.is_span,
                })),
                Err(why) => findings.push(format!("{place}: {why}")),
            }
        }
    }
    (found, findings)
}

fn words(code: &Code) -> Result<Vec<Vec<String>>, String> {
    let text = code.text.trim_start().trim_start_matches("$ ");
    if !STARTS.iter().any(|start| text.starts_with(start)) {
        return Ok(Vec::new());
    }
    let words = shlex::split(text).ok_or_else(|| format!("`{text}` has an open quote"))?;
    let commands = words.split(|word| matches!(word.as_str(), "&&" | "|" | "||" | ";"));
    Ok(commands.map(before_redirection).collect())
}

fn before_redirection(words: &[String]) -> Vec<String> {
    let is_redirection = |word: &String| word.starts_with('>') || word == "2>";
    words.iter().take_while(|word| !is_redirection(word)).cloned().collect()
}

/// Whether a word stands for any command.
pub fn is_placeholder(word: &str) -> bool {
    word.chars().all(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::file;

    #[test]
    fn commands_are_told_apart() {
        let text =
            "    anemeter bench b --out r && anemeter gate r > gate.xml\n\n`anemeter lint`, `cargo test`\n";
        let (found, findings) = commands(&[file("a.md", text), file("b.rs", "//! `anemeter x`")]);
        let shown: Vec<_> = found.iter().map(|c| (c.place.as_str(), c.words.join(" "), c.is_span)).collect();
        assert_eq!(
            shown,
            [
                ("a.md:1", "anemeter bench b --out r".to_owned(), false),
                ("a.md:1", "anemeter gate r".to_owned(), false),
                ("a.md:3", "anemeter lint".to_owned(), true),
            ]
        );
        assert_eq!(findings, Vec::<String>::new());
    }

    #[test]
    fn open_quotes_are_found() {
        let (_, findings) = commands(&[file("a.md", "    anemeter generate b --prompt 'Why")]);
        assert_eq!(findings, ["a.md:1: `anemeter generate b --prompt 'Why` has an open quote"]);
    }
}
