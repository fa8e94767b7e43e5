//! The progress of an export: a bar on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write, stderr};

use indicatif::{ProgressBar, ProgressStyle};

use crate::export::Progress;
use crate::package::Watch;

/// Shows the progress on standard error.
pub(super) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    pub(super) fn new() -> Bar {
        let bar = match stderr().is_terminal() {
            true => ProgressBar::no_length(),
            false => ProgressBar::hidden(),
        };
        Bar { bar }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn began(&self, step: &str, bytes: Option<u64>) {
        if self.bar.is_hidden() {
            let _ = writeln!(stderr(), "{step}");
            return;
        }
        let template = match bytes {
            Some(_) => {
                "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}, {eta} left"
            }
            None => "{msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_position(0);
        self.bar.set_length(bytes.unwrap_or(0));
        self.bar.set_message(step.to_owned());
    }
}

impl Watch for Bar {
    fn wrote(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
}
