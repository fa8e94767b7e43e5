//! Standard output, buffered, and standard error. A closed pipe is not an error.
//!
//! Lines and texts are for a terminal or a log: whatever names of files say, they hold nothing that is not seen and no
//! workflow command. Documents are printed as they are.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Stdout, Write};
use std::path::Path;

use anstyle::{AnsiColor, Color, Style};
use serde::Serialize;

use super::{Failure, Result, verbosity};
use crate::atomic;
use crate::text::{is_unseen, visible, visible_lines, visible_message, without_commands};

/// Where a command prints its result.
pub(super) struct Output {
    out: BufWriter<Stdout>,
}

impl Output {
    pub(super) fn stdout() -> Output {
        Output { out: BufWriter::new(io::stdout()) }
    }

    /// Prints one line; those before and after it may be empty.
    pub(super) fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        let line = line.to_string();
        let (start, end) = (line.trim_start_matches('\n').len(), line.trim_end_matches('\n').len());
        let (before, rest) = line.split_at(line.len() - start);
        let (middle, after) = rest.split_at(end.saturating_sub(before.len()));
        let middle = without_commands(&visible(middle));
        writeln!(self.out, "{before}{middle}{after}").map_err(|e| failure(&e))
    }

    /// Prints text of several lines.
    pub(super) fn text(&mut self, text: impl fmt::Display) -> Result<()> {
        let text = without_commands(&visible_lines(&text.to_string()));
        write!(self.out, "{text}").map_err(|e| failure(&e))
    }

    /// Prints a document as it is.
    pub(super) fn document(&mut self, text: impl fmt::Display) -> Result<()> {
        write!(self.out, "{text}").map_err(|e| failure(&e))
    }

    /// Prints a document as JSON.
    pub(super) fn json(&mut self, document: &impl Serialize) -> Result<()> {
        let json = json(document)?;
        self.document(json)
    }

    /// Shows what was printed so far.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| failure(&e))
    }
}

/// A document as JSON. What is not seen can only be within its strings, which may have it escaped.
pub(super) fn json(document: &impl Serialize) -> Result<String> {
    let text =
        serde_json::to_string_pretty(document).map_err(|e| Failure::bad_input(format!("json: {e}")))?;
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            c if is_unseen(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('\n');
    Ok(out)
}

/// Writes a whole file or nothing.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    atomic::write_file(path, bytes).map_err(|e| Failure::at(path, e))
}

/// Refuses to replace a report, which nobody can measure again as it was, unless that is asked for.
pub(super) fn keep_measurement(path: &Path, force: bool) -> Result<()> {
    let is_regular = std::fs::metadata(path).is_ok_and(|there| there.is_file());
    if force || !is_regular || !super::inputs::holds_report(path) {
        return Ok(());
    }
    Err(Failure::at(path, "holds a measurement, so it is not replaced")
        .with_help("choose another path, or replace it: --force"))
}

/// Makes a folder, if it is not there yet.
pub(super) fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|e| Failure::at(path, e))
}

/// Prints a line on standard error, unless `--quiet` is given.
pub(super) fn note(line: impl fmt::Display) {
    if !verbosity::is_quiet() {
        warn(line);
    }
}

/// Prints a line on standard error, even with `--quiet`.
pub(super) fn warn(line: impl fmt::Display) {
    say(&without_commands(&visible_message(&line.to_string())));
}

/// Prints a workflow command for GitHub on standard error.
pub(super) fn workflow_command(command: impl fmt::Display) {
    say(&command.to_string());
}

fn say(line: &str) {
    let (word, rest) = line.split_once(':').unwrap_or(("", ""));
    // A closed standard error is not a failure.
    let _ = match COLOURS.iter().find(|(coloured, _)| *coloured == word) {
        Some((word, colour)) => writeln!(anstream::stderr(), "{colour}{word}:{colour:#}{rest}"),
        None => writeln!(io::stderr(), "{line}"),
    };
}

const fn bold(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour))).bold()
}

/// Words before a colon, and what they look like on a terminal that shows colours.
const COLOURS: &[(&str, Style)] = &[
    ("error", bold(AnsiColor::Red)),
    ("help", bold(AnsiColor::Cyan)),
    ("note", bold(AnsiColor::Blue)),
    ("warning", bold(AnsiColor::Yellow)),
];

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::closed_pipe(),
        _ => Failure::bad_input(format!("standard output: {error}")),
    }
}
