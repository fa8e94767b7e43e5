//! `cargo xtask check quickstart`: the README's first command as a new user runs it, and its page as they see it.
//! `--runs N` repeats it and counts the verdicts on the unchanged bundle and on the slowed one; `--busy` keeps one core
//! busy meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anemeter::report::{Metric, Report};
use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use crate::browser::{self, Scheme};
use crate::busy::with_one_core_busy;
use xtask::median;
use xtask::outcome::Outcome;
use xtask::process::read;
use xtask::project::Project;
use xtask::record;

/// Words that the narrative must have, in this order.
const TOLD: &[&str] = &[
    "anemeter export",
    "anemeter lint",
    "passed",
    "tokens/s",
    "anemeter bless",
    "anemeter compare",
    "anemeter gate",
    "FAIL",
    "report.html",
];

/// How the comparison of the unchanged bundle with itself ends.
const UNCHANGED: &str = "-o reports/unchanged";
/// How the gate on the slowed bundle ends.
const SLOWED: &str = "gate reports/slower --baselines baselines";
/// Verdicts, as the narrative says them.
const VERDICTS: &[&str] = &["pass", "FAIL", "inconclusive"];
/// Of all runs, at least so many must find the unchanged bundle unchanged.
const PASSES: f64 = 0.95;

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let runs: Option<usize> = arguments.opt_value_from_str("--runs")?;
    let busy = arguments.contains("--busy");
    let recorded = arguments.contains("--record");
    let Some(runs) = runs else { return with_one_core_busy(busy, || once(project)) };
    ensure!(runs > 0, "--runs is 0, expected 1 or more");
    let tally = with_one_core_busy(busy, || repeat(project, runs))?;
    if recorded {
        let busy = if busy { " --busy" } else { "" };
        let command = format!("cargo xtask check quickstart --runs {runs}{busy}");
        record::write(project, "check quickstart", &command, &format!("{tally}.\n"))?;
    }
    ensure!(tally.unchanged_passes(), "{tally}");
    Ok(Outcome::Checked(tally.to_string()))
}

fn once(project: &Project) -> Result<Outcome> {
    let folder = project.target.join("quickstart");
    let began = Instant::now();
    let told = quickstart(project, &folder)?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{told}");
    check_order(&told)?;
    let page = check_page(&folder.join("report.html"))?;
    Ok(match page {
        Some(page) => Outcome::Checked(format!("{seconds:.0} s; {page}")),
        None => Outcome::not_checked(
            "the quickstart's page",
            "there is no Chromium, and apt-get cannot install it",
        ),
    })
}

/// What came of the runs.
#[derive(Default)]
struct Tally {
    runs: usize,
    unchanged: BTreeMap<&'static str, usize>,
    slowed: BTreeMap<&'static str, usize>,
    /// How many times slower tokens came with `--slow-down 100`, in each run.
    factors: Vec<f64>,
}

impl Tally {
    fn unchanged_passes(&self) -> bool {
        self.unchanged.get("pass").is_some_and(|&passes| passes as f64 >= PASSES * self.runs as f64)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |verdicts: &BTreeMap<&str, usize>| {
            let counts: Vec<String> =
                verdicts.iter().map(|(verdict, count)| format!("{verdict} {count}")).collect();
            counts.join(", ")
        };
        let (unchanged, slowed) = (list(&self.unchanged), list(&self.slowed));
        write!(f, "of {} runs the unchanged bundle: {unchanged}; the slowed one: {slowed}", self.runs)?;
        let factor = median(self.factors.clone());
        write!(f, "; `--slow-down 100` made tokens {factor:.2} times slower (median)")
    }
}

fn repeat(project: &Project, runs: usize) -> Result<Tally> {
    let mut tally = Tally { runs, ..Tally::default() };
    for run in 1..=runs {
        let began = Instant::now();
        let folder = project.target.join("quickstart");
        let told = quickstart(project, &folder)?;
        let (unchanged, slowed) = (verdict_after(&told, UNCHANGED)?, verdict_after(&told, SLOWED)?);
        let factor = speed(&folder.join("reports/first"))? / speed(&folder.join("reports/slower"))?;
        let seconds = began.elapsed().as_secs_f64();
        println!("run {run} of {runs}: {unchanged}, slowed {factor:.2} times {slowed}, {seconds:.0} s");
        *tally.unchanged.entry(unchanged).or_default() += 1;
        *tally.slowed.entry(slowed).or_default() += 1;
        tally.factors.push(factor);
    }
    Ok(tally)
}

/// Median tokens per second at the longest length of a report.
fn speed(folder: &Path) -> Result<f64> {
    let report = Report::parse(&fs::read(folder.join("report.json"))?)?;
    let longest = report.workload.seq_lens.last().copied();
    let figure = report.figure(Metric::Tps, longest).context("the report has no TPS")?;
    figure.summary.percentiles.p50.context("TPS has no median")
}

fn quickstart(project: &Project, folder: &Path) -> Result<String> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    read(project.command(project.release("anemeter")?).arg("quickstart").arg("--out").arg(folder))
}

fn verdict_after(told: &str, command: &str) -> Result<&'static str> {
    let (_, after) = told.split_once(command).with_context(|| format!("the narrative has no `{command}`"))?;
    let line = after.lines().nth(1).context("the command says nothing")?.trim();
    VERDICTS.iter().find(|verdict| line.starts_with(**verdict)).copied().with_context(|| line.to_owned())
}

fn check_order(told: &str) -> Result<()> {
    let mut rest = told;
    for words in TOLD {
        let at =
            rest.find(words).with_context(|| format!("the narrative lacks `{words}` or has it too early"))?;
        rest = &rest[at..];
    }
    Ok(())
}

/// Opens a page in both colour schemes and leaves pictures beside it; nothing if there is no browser.
pub(super) fn check_page(path: &Path) -> Result<Option<String>> {
    let Some(chromium) = browser::chromium() else { return Ok(None) };
    let page = browser::read(&chromium, path)?;
    ensure!(page.console.is_empty(), "the page complains: {}", page.console.join("; "));
    ensure!(page.requests.is_empty(), "the page asks for {}", page.requests.join(", "));
    let (rows, charts) = (page.document.matches("<tr").count(), page.document.matches("<svg").count());
    ensure!(page.document.contains("<title>") && rows > 10 && charts > 0, "{rows} rows, {charts} charts");
    for (scheme, name) in [(Scheme::Light, "light.png"), (Scheme::Dark, "dark.png")] {
        browser::picture(&chromium, path, scheme, &path.with_file_name(name))?;
    }
    Ok(Some(format!(
        "its page has {rows} rows and {charts} charts, complains of nothing and asks for nothing"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrative_in_another_order_is_refused() {
        check_order(&TOLD.join("\n")).unwrap();
        let backwards: Vec<&str> = TOLD.iter().rev().copied().collect();
        assert!(check_order(&backwards.join("\n")).is_err());
    }

    #[test]
    fn the_verdict_stands_below_the_command() {
        let told = "  $ anemeter compare bundle bundle -o reports/unchanged\n    pass: nothing is slower\n";
        assert_eq!(verdict_after(told, UNCHANGED).unwrap(), "pass");
        assert!(verdict_after("nothing", UNCHANGED).is_err());
    }
}
