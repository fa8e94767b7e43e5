//! How much the program says beside its results: `--quiet`, `--verbose`, `RUST_LOG`, and whether there is a terminal.

use std::io::{IsTerminal, stderr};
use std::sync::OnceLock;

use env_logger::{Builder, Env};
use indicatif::{ProgressBar, ProgressStyle};
use log::LevelFilter;

use super::output::note;

/// How much is said; standard until [`Voice::set`] is called.
static VOICE: OnceLock<Voice> = OnceLock::new();

/// What the global flags say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub(super) struct Voice {
    /// Say only what was asked for, warnings, and what went wrong.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    quiet: bool,
    /// Say what is being done; twice, in more detail. RUST_LOG chooses by module.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    verbose: u8,
}

impl Voice {
    /// Makes it the program's.
    pub(super) fn set(self) {
        let mut logger = Builder::new();
        logger.filter(None, LevelFilter::Off).filter_module("anemeter", self.level());
        logger.parse_env(Env::default()).format_timestamp(None).init();
        // Set once, at the start.
        let _ = VOICE.set(self);
    }

    fn level(self) -> LevelFilter {
        match (self.quiet, self.verbose) {
            (true, _) => LevelFilter::Off,
            (false, 0) => LevelFilter::Warn,
            (false, 1) => LevelFilter::Info,
            (false, 2) => LevelFilter::Debug,
            (false, _) => LevelFilter::Trace,
        }
    }
}

/// Whether notes and progress are wanted.
pub(super) fn is_quiet() -> bool {
    VOICE.get().is_some_and(|voice| voice.quiet)
}

/// A progress bar on standard error; hidden where there is no terminal, or lines of a log would run into it.
pub(super) fn bar(template: &str) -> ProgressBar {
    let is_wanted = !is_quiet() && log::max_level() <= LevelFilter::Warn && stderr().is_terminal();
    let bar = if is_wanted { ProgressBar::no_length() } else { ProgressBar::hidden() };
    style(&bar, template);
    bar
}

/// Gives a bar another look.
pub(super) fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// Work of known length: a bar with the time that is left on a terminal, a line at every tenth elsewhere.
pub(super) struct Steps {
    bar: ProgressBar,
    done: &'static str,
    unit: &'static str,
    tenth: usize,
}

impl Steps {
    /// Progress that reads `done 3 of 8 unit`.
    pub(super) fn new(done: &'static str, unit: &'static str) -> Steps {
        let template = format!("{done} [{{bar:30}}] {{pos}}/{{len}} {unit}, {{eta}} left");
        Steps { bar: bar(&template), done, unit, tenth: 0 }
    }

    pub(super) fn show(&mut self, done: usize, total: usize) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        let tenth = done * 10 / total.max(1);
        if self.bar.is_hidden() && tenth > self.tenth {
            self.tenth = tenth;
            note(format_args!("{} {done} of {total} {}", self.done, self.unit));
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_choose_the_level() {
        let voice = |quiet, verbose| Voice { quiet, verbose }.level();
        assert_eq!(voice(true, 0), LevelFilter::Off);
        assert_eq!(voice(false, 0), LevelFilter::Warn);
        assert_eq!(
            [1, 2, 3, 9].map(|verbose| voice(false, verbose)),
            [LevelFilter::Info, LevelFilter::Debug, LevelFilter::Trace, LevelFilter::Trace]
        );
    }
}
