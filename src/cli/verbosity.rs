//! How much is printed beside results: `--quiet`, `--verbose`, `RUST_LOG`, and whether there is a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::sync::OnceLock;

use env_logger::{Builder, Env};
use indicatif::{ProgressBar, ProgressStyle};
use log::LevelFilter;

use super::output::note;
use crate::text::{visible_message, without_commands};

/// The default until [`Verbosity::set`] is called.
static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

/// What the global flags say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub(super) struct Verbosity {
    /// Print results, warnings and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    quiet: bool,
    /// Log what is being done; -vv and -vvv log more. RUST_LOG selects by module.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    verbose: u8,
}

impl Verbosity {
    /// Makes it the program's.
    pub(super) fn set(self) {
        let mut logger = Builder::new();
        logger.filter(None, LevelFilter::Off).filter_module("anemeter", self.level());
        logger.parse_env(Env::default());
        logger.format(|out, record| {
            let (level, target) = (record.level(), record.target());
            let message = without_commands(&visible_message(&record.args().to_string()));
            writeln!(out, "[{level:<5} {target}] {message}")
        });
        logger.init();
        // Set once, at the start.
        let _ = VERBOSITY.set(self);
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
    VERBOSITY.get().is_some_and(|verbosity| verbosity.quiet)
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
