//! Standard output, buffered, and standard error. A closed pipe is not an error.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Stdout, Write};
use std::path::Path;

use anstyle::{AnsiColor, Color, Style};
use serde::Serialize;

use super::{Failure, Result, verbosity};
use crate::atomic;

/// Where a command prints its result.
pub(super) struct Output {
    out: BufWriter<Stdout>,
}

impl Output {
    pub(super) fn stdout() -> Output {
        Output { out: BufWriter::new(io::stdout()) }
    }

    pub(super) fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        writeln!(self.out, "{line}").map_err(|e| failure(&e))
    }

    /// Prints text as it is.
    pub(super) fn text(&mut self, text: impl fmt::Display) -> Result<()> {
        write!(self.out, "{text}").map_err(|e| failure(&e))
    }

    pub(super) fn json(&mut self, document: &impl Serialize) -> Result<()> {
        let text =
            serde_json::to_string_pretty(document).map_err(|e| Failure::bad_input(format!("json: {e}")))?;
        self.line(text)
    }

    /// Shows what was printed so far.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| failure(&e))
    }
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
    let line = line.to_string();
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
