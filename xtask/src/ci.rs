//! `cargo xtask ci`: every check, each timed, with a summary at the end.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use pico_args::Arguments;

use crate::outcome::{Outcome, Shown};
use crate::process::succeed;
use crate::project::Project;
use crate::task::{Run, Task};
use crate::{lab, test, tidy, workflows};

pub(crate) const TASK: Task = Task {
    name: "ci",
    arguments: "[STEP...]",
    about: "every check, or the named steps, as the continuous integration runs them",
    not_checked: 1,
    run: Run::Here(run),
};

/// How long all of it may take on two cores.
const BUDGET: Duration = Duration::from_secs(25 * 60);

/// How a step is made.
enum How {
    Here(fn(&Project) -> Result<Outcome>),
    /// The tests, whose totals are the last line.
    Tests,
    /// What needs the library.
    InLab(&'static [&'static str]),
}

const STEPS: &[(&str, How)] = &[
    ("fmt", How::Here(|project| cargo(project, &["fmt", "--all", "--check"]))),
    (
        "clippy",
        How::Here(|project| {
            let everything =
                ["clippy", "--workspace", "--all-targets", "--features", "lab/candle-transformers"];
            cargo(project, &[&everything[..], &["--", "-D", "warnings"]].concat())
        }),
    ),
    ("test", How::Tests),
    ("rustdoc", How::Here(rustdoc)),
    ("tidy", How::Here(tidy::check)),
    ("workflows", How::Here(workflows::check)),
    ("apple", How::Here(apple)),
    ("docs", How::InLab(&["check", "docs"])),
    ("conformance", How::InLab(&["check", "conformance"])),
    ("quickstart", How::InLab(&["check", "quickstart"])),
    ("smollm2", How::InLab(&["check", "smollm2"])),
    ("coreml", How::InLab(&["check", "coreml"])),
    ("coreai-runtime", How::InLab(&["check", "coreai-runtime"])),
    ("coreai", How::InLab(&["check", "coreai", "--quick"])),
    ("coreai-models", How::InLab(&["check", "coreai-models", "--quick"])),
];

/// What a step came to.
struct Step {
    name: &'static str,
    result: Result<Outcome>,
    time: Duration,
}

fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let mut named = Vec::new();
    while let Some(name) = arguments.opt_free_from_str::<String>()? {
        named.push(name);
    }
    crate::finish(arguments)?;
    let chosen = choose(&named)?;
    let start = Instant::now();
    let mut steps = Vec::new();
    let mut totals = None;
    for (name, how) in chosen {
        println!("\n== {name} ==");
        let start = Instant::now();
        let result = match how {
            How::Here(check) => check(project),
            How::InLab(words) => lab::run(project, words, Vec::new()),
            How::Tests => test::run(project).and_then(|report| {
                totals = Some(report.totals());
                report.verdict().map(Outcome::Checked)
            }),
        };
        if let Err(error) = &result
            && !error.is::<Shown>()
        {
            eprintln!("error: {name}: {error:#}");
        }
        steps.push(Step { name, result, time: start.elapsed() });
    }
    print!("{}", summary(&steps, start.elapsed()));
    close(&steps, totals)
}

fn choose(named: &[String]) -> Result<Vec<&'static (&'static str, How)>> {
    if let Some(name) = named.iter().find(|name| STEPS.iter().all(|step| step.0 != name.as_str())) {
        let known: Vec<&str> = STEPS.iter().map(|step| step.0).collect();
        bail!("there is no step `{name}`, only {}", known.join(" "));
    }
    let is_chosen = |name: &str| named.is_empty() || named.iter().any(|wanted| wanted == name);
    Ok(STEPS.iter().filter(|step| is_chosen(step.0)).collect())
}

/// Ends with the totals of the tests, if those were a step, whatever came of the others.
fn close(steps: &[Step], totals: Option<String>) -> Result<Outcome> {
    let failed = steps.iter().filter(|step| step.result.is_err()).count();
    let has_tests = steps.iter().any(|step| step.name == "test");
    let last_line = totals.or_else(|| has_tests.then(|| "0 passed, 0 failed".to_owned()));
    let error = anyhow!("{failed} of {} steps failed", steps.len());
    match (failed, last_line) {
        (0, None) => Ok(Outcome::Checked(format!("{} steps", steps.len()))),
        (0, Some(totals)) => {
            println!("{totals}");
            Ok(Outcome::Checked(totals))
        }
        (_, None) => Err(error),
        (_, Some(totals)) => Err(Shown::before(&totals, &error)),
    }
}

fn cargo(project: &Project, arguments: &[&str]) -> Result<Outcome> {
    succeed(&mut project.cargo(arguments))?;
    Ok(Outcome::Checked(String::new()))
}

/// Private items too: their links are read by whoever works on the code.
fn rustdoc(project: &Project) -> Result<Outcome> {
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
    fn steps_are_chosen_by_name_and_made_in_their_order() {
        let names = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
            choose(&named).map(|steps| steps.iter().map(|step| step.0).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert_eq!(names(&["tidy", "fmt"]).unwrap(), ["fmt", "tidy"]);
        assert!(names(&["tdiy"]).unwrap_err().to_string().starts_with("there is no step `tdiy`, only fmt"));
    }

    #[test]
    fn every_step_is_run_by_a_job_of_the_workflow() {
        // The job on macOS runs clippy and the tests for that target itself, which the tool stands in for elsewhere.
        const ON_MACOS: &[&str] = &["apple"];
        let workflow = include_str!("../../.github/workflows/ci.yml");
        let lines = workflow.lines().filter_map(|line| line.trim().strip_prefix("- run: cargo xtask ci "));
        let run: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let left: Vec<&str> = STEPS.iter().map(|step| step.0).filter(|name| !run.contains(name)).collect();
        assert_eq!(left, ON_MACOS);
        assert!(workflow.contains("runs-on: macos-latest"));
        let unknown = run.iter().find(|name| STEPS.iter().all(|step| step.0 != **name));
        assert_eq!(unknown, None);
    }

    #[test]
    fn a_failed_step_fails_the_whole() {
        let step = |name, result| Step { name, result, time: Duration::ZERO };
        let good = || step("tidy", Ok(Outcome::NotChecked("no git".into())));
        let bad = || step("test", Err(anyhow!("1 test failed")));
        assert_eq!(close(&[good()], None).unwrap(), Outcome::Checked("1 steps".into()));
        assert!(close(&[good(), bad()], Some("3 passed, 1 failed".into())).unwrap_err().is::<Shown>());
    }

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
