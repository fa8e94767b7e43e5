//! `cargo xtask test`: every test of the workspace, closed by one line with the totals.

use anyhow::{Result, bail};

use crate::outcome::{Outcome, Shown};
use crate::process::{watch, works};
use crate::project::Project;
use crate::task::{Run, Task};

pub(crate) const TASK: Task = Task {
    name: "test",
    arguments: "",
    about: "run every test; the last line is `N passed, N failed`",
    not_checked: 1,
    run: Run::Here(|project, _| {
        let report = run(project)?;
        let verdict = report.verdict().map_err(|error| Shown::before(&report.totals(), &error))?;
        println!("{}", report.totals());
        Ok(Outcome::Checked(verdict))
    }),
};

/// What the test runners said.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Runners that ended with an error.
    broken: Vec<String>,
}

/// Runs every test of the workspace: with nextest where it is installed, else with cargo's own runner.
pub fn run(project: &Project) -> Result<Report> {
    let nextest = works(&mut project.cargo(&["nextest", "--version"]));
    let runners: &[&[&str]] = if nextest {
        &[
            &["nextest", "run", "--workspace", "--no-fail-fast", "--color=never"],
            &["test", "--doc", "--workspace", "--no-fail-fast", "--color=never"],
        ]
    } else {
        &[&["test", "--workspace", "--no-fail-fast", "--color=never"]]
    };
    let mut report = Report::default();
    for arguments in runners {
        report.watch(&mut project.cargo(arguments), &format!("cargo {}", arguments.join(" ")))?;
    }
    Ok(report)
}

impl Report {
    /// The closing line.
    pub fn totals(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed)
    }

    /// The totals if all is well.
    pub fn verdict(&self) -> Result<String> {
        if let Some(runner) = self.broken.first() {
            bail!("the tests did not all pass: `{runner}`");
        }
        if self.failed > 0 {
            bail!("{} tests failed", self.failed);
        }
        if self.passed == 0 {
            bail!("no test ran");
        }
        let skipped = if self.skipped > 0 { format!(", {} skipped", self.skipped) } else { String::new() };
        Ok(self.totals() + &skipped)
    }

    /// Runs a test runner and takes down what it says.
    pub fn watch(&mut self, runner: &mut std::process::Command, name: &str) -> Result<()> {
        let status = watch(runner, |line| {
            self.count(line);
            true
        })?;
        if !status.success() {
            self.broken.push(format!("{name} ({status})"));
        }
        Ok(())
    }

    /// Takes the numbers from a runner's summary line; other lines have none. What nextest shows of a failed test is
    /// indented, and is counted in its summary.
    fn count(&mut self, line: &str) {
        let numbers = if line.trim_start().starts_with("Summary [") {
            line.split_once(" run: ").map(|(_, rest)| rest)
        } else {
            line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")).map(|(_, rest)| rest)
        };
        for item in without_parentheses(numbers.unwrap_or("")).split([',', ';']) {
            let Some((number, what)) = item.trim().split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what.trim() {
                "passed" => self.passed += number,
                "failed" | "timed out" | "exec failed" => self.failed += number,
                "skipped" | "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

fn without_parentheses(text: &str) -> String {
    let mut depth = 0;
    text.chars()
        .filter(|&c| {
            depth += i32::from(c == '(');
            let outside = depth == 0;
            depth -= i32::from(c == ')');
            outside
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &[&str]) -> (u64, u64, u64) {
        let mut report = Report::default();
        for line in lines {
            report.count(line);
        }
        (report.passed, report.failed, report.skipped)
    }

    #[test]
    fn reads_nextest_summaries() {
        assert_eq!(counted(&["     Summary [   0.012s] 5 tests run: 5 passed, 0 skipped"]), (5, 0, 0));
        assert_eq!(counted(&["Summary [ 1s] 1 test run: 1 passed, 2 skipped"]), (1, 0, 2));
        let mixed = "Summary [ 9s] 12 tests run: 8 passed (1 slow, 2 leaky), 2 failed, 1 timed out, 1 exec failed, 3 skipped";
        assert_eq!(counted(&[mixed]), (8, 4, 3));
        let shown = "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 173 filtered out";
        assert_eq!(counted(&[shown, "Summary [ 1s] 2 tests run: 1 passed, 1 failed, 0 skipped"]), (1, 1, 0));
    }

    #[test]
    fn reads_libtest_summaries_and_adds_them_up() {
        let lines = [
            "running 4 tests",
            "test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.0s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s",
        ];
        assert_eq!(counted(&lines), (5, 2, 1));
    }

    #[test]
    fn no_tests_and_broken_runners_are_failures() {
        assert_eq!(Report::default().verdict().unwrap_err().to_string(), "no test ran");
        let broken = Report { passed: 3, broken: vec!["cargo test".into()], ..Report::default() };
        assert!(broken.verdict().is_err());
        let good = Report { passed: 3, skipped: 1, ..Report::default() };
        assert_eq!(good.verdict().unwrap(), "3 passed, 0 failed, 1 skipped");
    }
}
