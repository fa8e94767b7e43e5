//! `cargo xtask ci`: every check, each timed, with a summary at the end.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use crate::outcome::{Outcome, Shown};
use crate::process::succeed;
use crate::project::Project;
use crate::{Command, conformance, quickstart, smollm2, test, test_coreml, tidy, workflows};

pub(crate) const COMMAND: Command = Command {
    name: "ci",
    arguments: "",
    about: "every check, as the continuous integration runs it",
    not_checked: 1,
    run: |project, _| run(project),
};

/// How long all of it may take on two cores.
const BUDGET: Duration = Duration::from_secs(25 * 60);

struct Step {
    name: &'static str,
    result: Result<Outcome>,
    time: Duration,
}

fn run(project: &Project) -> Result<Outcome> {
    let start = Instant::now();
    let mut steps = Vec::new();
    let mut step = |name, check: &mut dyn FnMut() -> Result<Outcome>| {
        println!("\n== {name} ==");
        let start = Instant::now();
        let result = check();
        if let Err(error) = &result {
            eprintln!("error: {name}: {error:#}");
        }
        steps.push(Step { name, result, time: start.elapsed() });
    };
    let mut totals = String::from("0 passed, 0 failed");

    step("fmt", &mut || cargo(project, &["fmt", "--all", "--check"]));
    step("clippy", &mut || {
        cargo(project, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    });
    step("test", &mut || {
        let report = test::run(project)?;
        totals = report.totals();
        report.verdict().map(Outcome::Checked)
    });
    step("docs", &mut || docs(project));
    step("tidy", &mut || tidy::check(project));
    step("workflows", &mut || workflows::check(project));
    step("apple", &mut || apple(project));
    step("conformance", &mut || conformance::check(project, &conformance::Selection::all()));

    step("quickstart", &mut || quickstart::check(project));
    step("smollm2", &mut || smollm2::check(project));
    step("coreml", &mut || test_coreml::check(project));

    let failed = steps.iter().filter(|step| step.result.is_err()).count();
    print!("{}", summary(&steps, start.elapsed()));
    if failed > 0 {
        return Err(Shown::before(&totals, &anyhow!("{failed} of {} steps failed", steps.len())));
    }
    println!("{totals}");
    Ok(Outcome::Checked(totals))
}

fn cargo(project: &Project, arguments: &[&str]) -> Result<Outcome> {
    succeed(&mut project.cargo(arguments))?;
    Ok(Outcome::Checked(String::new()))
}

/// Private items too: their links are read by whoever works on the code.
fn docs(project: &Project) -> Result<Outcome> {
    let mut command = project.cargo(&["doc", "--no-deps", "--workspace", "--document-private-items"]);
    succeed(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::Checked(String::new()))
}

/// Type check, lints and a link for macOS, by a tool that lies beside the repository.
fn apple(project: &Project) -> Result<Outcome> {
    const WHAT: &str = "Apple target aarch64-apple-darwin";
    let tool = project.shared.join("tools/apple-check");
    if !tool.is_file() {
        return Ok(Outcome::not_checked(WHAT, "there is no tools/apple-check beside the repository"));
    }
    let status = project.command(&tool).args(["--link", "."]).status()?;
    match status.code() {
        Some(0) => Ok(Outcome::Checked("clippy and link".to_owned())),
        Some(77) => Ok(Outcome::not_checked(WHAT, "apple-check could not be set up on this machine")),
        _ => bail!("apple-check failed ({status})"),
    }
}

fn summary(steps: &[Step], total: Duration) -> String {
    let mut text = format!("\n{:<14}{:<13}{:>9}\n", "step", "result", "time");
    for step in steps {
        let (result, detail) = match &step.result {
            Ok(Outcome::Checked(detail)) => ("ok", detail.clone()),
            Ok(Outcome::NotChecked(why)) => ("NOT CHECKED", why.clone()),
            Err(error) => ("FAILED", error.to_string()),
        };
        let time = format!("{:.1} s", step.time.as_secs_f64());
        let line = format!("{:<14}{result:<13}{time:>9}  {}", step.name, detail.lines().next().unwrap_or(""));
        text += line.trim_end();
        text += "\n";
    }
    let over = if total > BUDGET { ": OVER BUDGET" } else { "" };
    text + &format!("total {:.0} s of a budget of {} s{over}\n\n", total.as_secs_f64(), BUDGET.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_checked_from_not_checked_and_failed() {
        let step = |name, result| Step { name, result, time: Duration::from_millis(1500) };
        let steps = [
            step("fmt", Ok(Outcome::Checked(String::new()))),
            step("apple", Ok(Outcome::NotChecked("no tool".into()))),
            step("tidy", Err(anyhow::anyhow!("2 findings"))),
        ];
        let text = summary(&steps, Duration::from_secs(1600));
        assert!(text.contains("fmt           ok               1.5 s\n"));
        assert!(text.contains("apple         NOT CHECKED      1.5 s  no tool\n"));
        assert!(text.contains("tidy          FAILED           1.5 s  2 findings\n"));
        assert!(text.contains("total 1600 s of a budget of 1500 s: OVER BUDGET"));
    }
}
