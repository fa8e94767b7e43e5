//! The progress of a benchmark: a bar on a terminal, a line per launch elsewhere.

use std::cell::Cell;

use indicatif::ProgressBar;

use crate::cli::output::note;
use crate::cli::verbosity;
use crate::harness::Event;
use crate::report::Outcome;
use crate::text::{visible, visible_message};

/// Shows events on standard error.
pub(in crate::cli) struct Progress {
    bar: ProgressBar,
    /// The launch in hand, and how many there are.
    launch: Cell<(usize, usize)>,
}

impl Progress {
    pub(in crate::cli) fn new() -> Progress {
        let bar = verbosity::bar("{msg} [{bar:30}] {pos}/{len}, {eta} left");
        Progress { bar, launch: Cell::new((0, 1)) }
    }

    pub(in crate::cli) fn show(&self, event: &Event) {
        let said = line(event);
        let begins = matches!(event, Event::LaunchBegins { .. } | Event::SoakBegins { .. });
        match said {
            Some(said) if self.bar.is_hidden() => note(said),
            Some(said) if begins => self.bar.set_message(visible(&said)),
            Some(said) => self.bar.println(visible_message(&said)),
            None => {}
        }
        match *event {
            Event::LaunchBegins { index, of } => self.launch.set((index, of)),
            Event::Requested { done, of } => {
                let (launch, launches) = self.launch.get();
                self.bar.set_length((launches * of) as u64);
                self.bar.set_position((launch * of + done) as u64);
            }
            Event::SoakBegins { steps } => {
                self.bar.reset();
                self.bar.set_length(steps as u64);
            }
            Event::Soaked { steps } => self.bar.set_position(steps as u64),
            _ => {}
        }
    }

    pub(in crate::cli) fn finish(&self) {
        self.bar.finish_and_clear();
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
