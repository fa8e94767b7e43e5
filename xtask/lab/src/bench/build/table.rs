//! What the steps took, side by side.

use super::{Step, Target};
use crate::bench::export::measured::Measured;

/// A step at both commits.
pub(super) struct Row {
    pub(super) step: &'static Step,
    pub(super) head: Measured,
    pub(super) base: Option<Measured>,
}

impl Row {
    fn share(&self, of: fn(&Measured) -> f64) -> Option<f64> {
        self.base.as_ref().map(|base| of(&self.head) / of(base))
    }

    /// Whether the target is met; nothing if there is nothing to compare with.
    pub(super) fn is_met(&self) -> Option<bool> {
        match self.step.target {
            Target::Seconds(most) => Some(self.head.seconds < most),
            Target::ShareOfBase(most) => self.share(|m| m.seconds).map(|share| share <= most),
        }
    }

    fn line(&self) -> String {
        let target = match self.step.target {
            Target::Seconds(most) => format!("under {most:.0} s"),
            Target::ShareOfBase(most) => format!("at most {most} of the wall time"),
        };
        let verdict = match self.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not compared",
        };
        let both = |measured: &Measured| format!("{:.1} | {:.1}", measured.seconds, measured.cpu_seconds);
        let base = self.base.as_ref().map_or("– | –".to_owned(), both);
        let share = |of| self.share(of).map_or("–".to_owned(), |share| format!("{share:.2}"));
        let (wall, cpu) = (share(|m| m.seconds), share(|m| m.cpu_seconds));
        let command = self.step.command.join(" ");
        format!("| `{command}` | {} | {base} | {wall} | {cpu} | {target} | {verdict} |\n", both(&self.head))
    }
}

/// A table of all rows.
pub(super) fn text(rows: &[Row], head: &str, base: Option<&str>) -> String {
    let base = base.unwrap_or("no other commit");
    let heading = format!(
        "{head} against {base}, fresh clones with nothing downloaded; `test` is run after `quickstart`, `tidy` from an empty \
         target.\n\n| command | wall s | CPU s | wall s at {base} | CPU s at {base} | wall, share | CPU, share | target | |\n\
         |---|--:|--:|--:|--:|--:|--:|---|---|\n"
    );
    let lines: String = rows.iter().map(Row::line).collect();
    heading + &lines + &failures(rows, base)
}

/// What failed at the other commit.
fn failures(rows: &[Row], base: &str) -> String {
    let failed = rows.iter().filter(|row| row.base.as_ref().is_some_and(|measured| measured.status != 0));
    failed
        .map(|row| format!("\n`{}` fails at {base}; its time counts.\n", row.step.command.join(" ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::STEPS;
    use super::*;

    fn took(seconds: f64) -> Measured {
        Measured { seconds, cpu_seconds: seconds * 2.0, peak_bytes: 1, status: 0 }
    }

    #[test]
    fn shares_and_seconds_are_judged() {
        let row = |at: usize, head, base: Option<f64>| Row {
            step: &STEPS[at],
            head: took(head),
            base: base.map(took),
        };
        assert_eq!(row(0, 45.0, Some(100.0)).is_met(), Some(true));
        assert_eq!(row(0, 46.0, Some(100.0)).is_met(), Some(false));
        assert_eq!(row(1, 46.0, None).is_met(), None);
        assert_eq!(row(2, 29.0, Some(1.0)).is_met(), Some(true));
        assert_eq!(row(2, 30.0, None).is_met(), Some(false));
        let text = text(&[row(0, 45.0, Some(100.0)), row(1, 1.0, None)], "abc", Some("def"));
        let line = "| `cargo run --release -- quickstart` | 45.0 | 90.0 | 100.0 | 200.0 | 0.45 | 0.45 | at most 0.45 of the wall time | met |\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("| `cargo xtask test` | 1.0 | 2.0 | – | – | – | – |"), "{text}");
        assert!(!text.contains("fails at"), "{text}");
    }

    #[test]
    fn a_commit_that_fails_by_now_is_named() {
        let failed = Measured { status: 1, ..took(9.0) };
        let row = Row { step: &STEPS[1], head: took(3.0), base: Some(failed) };
        assert_eq!(row.is_met(), Some(true));
        assert!(
            text(&[row], "abc", Some("def"))
                .ends_with("\n`cargo xtask test` fails at def; its time counts.\n")
        );
    }
}
