//! The progress of a benchmark: a bar on a terminal, a line per launch elsewhere.

use std::io::{IsTerminal, Write, stderr};

use indicatif::{ProgressBar, ProgressStyle};

use crate::harness::Event;
use crate::report::Outcome;

/// Shows events on standard error.
pub(in crate::cli) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(in crate::cli) fn new() -> Progress {
        let bar = stderr().is_terminal().then(ProgressBar::no_length);
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}")) {
            bar.set_style(style);
        }
        Progress { bar }
    }

    pub(in crate::cli) fn show(&self, event: &Event) {
        if let Some(bar) = &self.bar {
            match event {
                Event::LaunchBegins { .. } | Event::SoakBegins { .. } => {
                    bar.set_position(0);
                    bar.set_message(line(event).unwrap_or_default());
                    if let Event::SoakBegins { steps } = event {
                        bar.set_length(*steps as u64);
                    }
                }
                Event::Requested { done, of } => {
                    bar.set_length(*of as u64);
                    bar.set_position(*done as u64);
                }
                Event::Soaked { steps } => bar.set_position(*steps as u64),
                _ => {}
            }
        }
        let is_news = !matches!(event, Event::LaunchBegins { .. } | Event::SoakBegins { .. });
        match (line(event), &self.bar) {
            (Some(line), Some(bar)) if is_news => bar.println(line),
            (Some(line), None) => {
                let _ = writeln!(stderr(), "{line}");
            }
            _ => {}
        }
    }

    pub(in crate::cli) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What an event says on a line of its own, if it is worth one.
fn line(event: &Event) -> Option<String> {
    match event {
        Event::LaunchBegins { index, of } => Some(format!("launch {} of {of}", index + 1)),
        Event::LaunchEnded { index, outcome: Outcome::Failed(failure) } => {
            Some(format!("launch {} {failure}", index + 1))
        }
        Event::ProbeFailed(failure) => {
            Some(format!("the probe {failure}; bandwidth and overhead stay unknown"))
        }
        Event::BudgetSpent { launches } => Some(format!("the time is used up after {launches} launches")),
        Event::SoakBegins { steps } => Some(format!("long run of {steps} steps")),
        Event::SoakEnded { outcome: Outcome::Failed(failure) } => Some(format!("the long run {failure}")),
        Event::Requested { .. }
        | Event::Soaked { .. }
        | Event::LaunchEnded { .. }
        | Event::SoakEnded { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Failure;

    #[test]
    fn failures_are_told_and_requests_are_not() {
        let outcome = Outcome::Failed(Failure::TimedOut(5000));
        let told = line(&Event::LaunchEnded { index: 2, outcome }).unwrap();
        assert_eq!(told, "launch 3 took longer than 5.0 s and was ended");
        assert_eq!(line(&Event::LaunchEnded { index: 2, outcome: Outcome::Completed }), None);
        assert_eq!(line(&Event::Requested { done: 1, of: 2 }), None);
    }
}
