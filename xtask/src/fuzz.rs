//! `cargo xtask fuzz`: every fuzz target for a while, from seeds that the library writes itself (`fuzz-seeds`).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::lab;
use crate::outcome::Outcome;
use crate::process::{succeed, watch, works};
use crate::project::Project;
use crate::task::{Run, Task};

pub(crate) const TASK: Task = Task {
    name: "fuzz",
    arguments: "[--seconds N] [TARGET]",
    about: "every fuzz target (or one) for N seconds each, 60 by default",
    not_checked: 77,
    run: Run::Here(|project, mut arguments| {
        let seconds = arguments.opt_value_from_str("--seconds")?.unwrap_or(60);
        let target = arguments.opt_free_from_str()?;
        crate::finish(arguments)?;
        run(project, seconds, target)
    }),
};

/// What libFuzzer said of one target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Session {
    executions: u64,
    coverage: u64,
    crashes: usize,
}

fn run(project: &Project, seconds: u64, only: Option<String>) -> Result<Outcome> {
    if !works(&mut project.cargo(&["+nightly", "--version"])) {
        return Ok(Outcome::not_checked(
            "fuzz targets",
            "there is no nightly toolchain, which cargo-fuzz needs",
        ));
    }
    if !works(&mut project.cargo(&["fuzz", "--version"])) {
        succeed(&mut project.cargo(&["install", "cargo-fuzz"]))?;
    }
    let mut targets = targets(&project.root.join("fuzz/fuzz_targets"))?;
    if let Some(only) = only {
        ensure!(targets.contains(&only), "there is no fuzz target `{only}`, only {}", targets.join(" "));
        targets = vec![only];
    }
    lab::run(project, &["fuzz-seeds"], targets.iter().map(Into::into).collect())?;
    let mut sessions = Vec::new();
    for target in &targets {
        println!("\n-- fuzz {target} --");
        sessions.push((target.as_str(), fuzz(project, target, seconds)?));
    }
    print!("{}", table(&sessions));
    let crashes: usize = sessions.iter().map(|(_, session)| session.crashes).sum();
    if crashes > 0 {
        bail!("{crashes} crashes; the inputs are in fuzz/artifacts/");
    }
    Ok(Outcome::Checked(format!("{} targets, {seconds} s each, no crash", targets.len())))
}

fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().and_then(|stem| stem.to_str()).context("a target has no name")?;
            names.push(name.to_owned());
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "{} has no fuzz target", folder.display());
    Ok(names)
}

/// Of few bytes the target `run` makes only a short program: it starts from noise of this length.
pub const PROGRAM_SEED_LENGTH: usize = 900;

fn fuzz(project: &Project, target: &str, seconds: u64) -> Result<Session> {
    let artifacts = project.root.join("fuzz/artifacts").join(target);
    let before = count_files(&artifacts)?;
    let mut command = project.cargo(&["+nightly", "fuzz", "run", target, "--"]);
    command.arg(format!("-max_total_time={seconds}"));
    command.args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=2048"]);
    if target == "run" {
        command.arg(format!("-max_len={}", 2 * PROGRAM_SEED_LENGTH));
    }
    let mut session = Session::default();
    let status = watch(&mut command, |line| {
        session.read(line);
        // Every new input, function and dictionary word has a line of its own.
        !line.starts_with(['#', '\t', '"'])
    })?;
    session.crashes = count_files(&artifacts)?.saturating_sub(before);
    if !status.success() && session.crashes == 0 {
        bail!("fuzz target `{target}` did not run ({status})");
    }
    ensure!(session.executions + session.crashes as u64 > 0, "fuzz target `{target}` executed nothing");
    Ok(session)
}

fn count_files(folder: &Path) -> Result<usize> {
    Ok(if folder.is_dir() { fs::read_dir(folder)?.count() } else { 0 })
}

impl Session {
    /// Takes the numbers from a line of libFuzzer's output.
    fn read(&mut self, line: &str) {
        if let Some(number) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = number.trim().parse().unwrap_or(0);
        }
        let mut words = line.split_whitespace();
        if line.starts_with('#') && words.any(|word| word == "cov:") {
            self.coverage = words.next().and_then(|number| number.parse().ok()).unwrap_or(self.coverage);
        }
    }
}

fn table(sessions: &[(&str, Session)]) -> String {
    let mut text = format!("\n{:<24}{:>12}{:>10}{:>9}\n", "target", "executions", "coverage", "crashes");
    for (target, session) in sessions {
        text += &format!(
            "{target:<24}{:>12}{:>10}{:>9}\n",
            session.executions, session.coverage, session.crashes
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_libfuzzer_prints() {
        let mut session = Session::default();
        for line in [
            "INFO: seed corpus: files: 2",
            "#2\tINITED cov: 120 ft: 200 corp: 1/10b exec/s: 0 rss: 40Mb",
            "#4096\tpulse  cov: 377 ft: 901 corp: 90/2Kb lim: 43 exec/s: 2048 rss: 60Mb",
            "stat::number_of_executed_units: 812345",
        ] {
            session.read(line);
        }
        assert_eq!(session, Session { executions: 812_345, coverage: 377, crashes: 0 });
        assert!(
            table(&[("model", session)])
                .contains("model                         812345       377        0\n")
        );
    }
}
