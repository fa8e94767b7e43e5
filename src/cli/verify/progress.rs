//! How far a comparison is: a bar on a terminal, a line at every tenth elsewhere.

use std::io::{IsTerminal, Write, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the progress on standard error.
pub(super) struct Bar {
    bar: ProgressBar,
    tenth: usize,
}

impl Bar {
    pub(super) fn new() -> Bar {
        let bar = if stderr().is_terminal() { ProgressBar::no_length() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("compared [{bar:30}] {pos}/{len} runs, {eta} left") {
            bar.set_style(style);
        }
        Bar { bar, tenth: 0 }
    }

    pub(super) fn show(&mut self, done: usize, total: usize) {
        if !self.bar.is_hidden() {
            self.bar.set_length(total as u64);
            self.bar.set_position(done as u64);
            return;
        }
        let tenth = done * 10 / total.max(1);
        if tenth > self.tenth {
            self.tenth = tenth;
            let _ = writeln!(stderr(), "compared {done} of {total} runs");
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
