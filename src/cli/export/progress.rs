//! The progress of an export: a bar on a terminal, plain lines elsewhere.

use indicatif::ProgressBar;

use crate::cli::output::note;
use crate::cli::verbosity;
use crate::export::Progress;
use crate::package::Watch;
use crate::text::visible;

const BYTES: &str =
    "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}, {eta} left";

/// Shows the progress on standard error.
pub(super) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    pub(super) fn new() -> Bar {
        Bar { bar: verbosity::bar("{msg}") }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn began(&self, step: &str, bytes: Option<u64>) {
        if self.bar.is_hidden() {
            note(step);
            return;
        }
        verbosity::style(&self.bar, if bytes.is_some() { BYTES } else { "{msg}" });
        self.bar.reset();
        self.bar.set_length(bytes.unwrap_or(0));
        self.bar.set_message(visible(step));
    }
}

impl Watch for Bar {
    fn wrote(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
}
