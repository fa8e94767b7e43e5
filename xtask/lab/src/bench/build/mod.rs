//! `cargo xtask bench build`: what a newcomer waits for, in fresh clones of this commit and of another.

mod clone;
mod table;

use std::fs;

use anyhow::{Context, Result, bail};
use pico_args::Arguments;

use clone::Clone;
use table::Row;
use xtask::outcome::Outcome;
use xtask::process::{read, works};
use xtask::project::{Project, make_empty};
use xtask::record;

/// The commit before the library was divided into crates.
pub(super) const BASE: &str = "17d63fd";

/// A command that is timed.
struct Step {
    name: &'static str,
    command: &'static [&'static str],
    /// Whether everything that was built before is removed first.
    is_from_nothing: bool,
    target: Target,
}

/// What is wanted of a step.
#[derive(Clone, Copy)]
enum Target {
    /// Of the other commit's time by the clock.
    ShareOfBase(f64),
    Seconds(f64),
}

/// The README's commands, as they stand there, and the task that is run most often.
const STEPS: &[Step] = &[
    Step {
        name: "quickstart",
        command: &["cargo", "run", "--release", "--", "quickstart"],
        is_from_nothing: true,
        target: Target::ShareOfBase(0.45),
    },
    Step {
        name: "test",
        command: &["cargo", "xtask", "test"],
        is_from_nothing: false,
        target: Target::ShareOfBase(0.5),
    },
    Step {
        name: "tidy",
        command: &["cargo", "xtask", "tidy"],
        is_from_nothing: true,
        target: Target::Seconds(30.0),
    },
];

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let base: Option<String> = arguments.opt_value_from_str("--base")?;
    let only: Option<String> = arguments.opt_value_from_str("--only")?;
    let without_base = arguments.contains("--skip-base");
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    if recorded && (only.is_some() || without_base) {
        bail!("--record goes with a whole run");
    }
    let steps = choose(only.as_deref())?;
    if !works(project.command("python3").arg("--version")) {
        return Ok(Outcome::not_checked("the time of a build", "there is no python3, which takes the time"));
    }
    let base = base.as_deref().unwrap_or(BASE);
    let head = commit(project, "HEAD")?;
    let other = if without_base { None } else { Some(commit(project, base)?) };
    if !read(project.command("git").args(["status", "--porcelain"]))?.is_empty() {
        println!("what is not committed is not measured");
    }
    let rows = measure(project, &steps, &head, other.as_deref())?;
    let text = table::text(&rows, &head, other.as_deref());
    println!("\n{text}");
    if recorded {
        record::write(project, "bench build", &format!("cargo xtask bench build --base {base}"), &text)?;
    }
    match rows.iter().find(|row| row.is_met() == Some(false)) {
        Some(row) => bail!("{} misses its target", row.step.name),
        None => Ok(Outcome::Checked(format!("{} commands at {head}", rows.len()))),
    }
}

fn choose(only: Option<&str>) -> Result<Vec<&'static Step>> {
    let steps: Vec<&Step> = STEPS.iter().filter(|step| only.is_none_or(|name| step.name == name)).collect();
    let known = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    if steps.is_empty() {
        bail!("`{}` is none of {}", only.unwrap_or_default(), known());
    }
    Ok(steps)
}

/// The short name of a commit.
pub(super) fn commit(project: &Project, revision: &str) -> Result<String> {
    let mut parse = project.command("git");
    let told = read(parse.args(["rev-parse", "--short", "--verify", &format!("{revision}^{{commit}}")]));
    Ok(told.with_context(|| format!("find the commit `{revision}`"))?.trim().to_owned())
}

/// All steps at one commit, then all at the other, each in a clone of its own.
fn measure(project: &Project, steps: &[&'static Step], head: &str, base: Option<&str>) -> Result<Vec<Row>> {
    let folder = project.target.join("bench-build");
    make_empty(&folder)?;
    let mut rows: Vec<Row> = Vec::new();
    let clone = Clone::make(project, &folder, head)?;
    for step in steps {
        rows.push(Row { step, head: clone.time(project, step, false)?, base: None });
    }
    if let Some(base) = base {
        let clone = Clone::make(project, &folder, base)?;
        for row in &mut rows {
            row.base = Some(clone.time(project, row.step, true)?);
        }
    }
    fs::remove_dir_all(&folder)?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_can_be_chosen() {
        assert_eq!(choose(None).unwrap().len(), 3);
        assert_eq!(choose(Some("tidy")).unwrap()[0].command, ["cargo", "xtask", "tidy"]);
        let error = choose(Some("tests")).err().unwrap().to_string();
        assert_eq!(error, "`tests` is none of quickstart, test, tidy");
    }

    #[test]
    fn commits_are_found_or_named() {
        let project = Project::find().unwrap();
        let error = commit(&project, "no-such-commit").unwrap_err();
        assert_eq!(error.to_string(), "find the commit `no-such-commit`");
    }
}
