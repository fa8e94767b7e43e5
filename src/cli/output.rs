//! Standard output, buffered; a reader that has gone away is not an error.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Stdout, Write};
use std::path::Path;

use serde::Serialize;

use super::Failure;
use crate::package::atomic;

/// Where a command prints its result.
pub(super) struct Output {
    out: BufWriter<Stdout>,
}

impl Output {
    pub(super) fn stdout() -> Output {
        Output { out: BufWriter::new(io::stdout()) }
    }

    /// Prints one line.
    pub(super) fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(|e| failure(&e))
    }

    /// Prints text as it is.
    pub(super) fn text(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        write!(self.out, "{text}").map_err(|e| failure(&e))
    }

    /// Prints one JSON document.
    pub(super) fn json(&mut self, document: &impl Serialize) -> Result<(), Failure> {
        let text =
            serde_json::to_string_pretty(document).map_err(|e| Failure::bad_input(format!("json: {e}")))?;
        self.line(text)
    }

    /// Shows what was printed so far.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|e| failure(&e))
    }
}

/// Writes a whole file or nothing.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    atomic::write_file(path, bytes).map_err(|e| Failure::bad_input(format!("{}: {e}", path.display())))
}

/// Says something on standard error, beside the result.
pub(super) fn note(line: impl fmt::Display) {
    // Nobody to hear it is not a failure.
    let _ = writeln!(io::stderr(), "{line}");
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::closed_pipe(),
        _ => Failure::bad_input(format!("standard output: {error}")),
    }
}
