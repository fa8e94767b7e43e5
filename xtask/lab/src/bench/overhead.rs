//! `cargo xtask bench overhead`: what the harness adds to a step, measured with a model that does nothing.

use std::io::Write;
use std::path::Path;
use std::process::{Command as Program, Stdio};

use anyhow::{Context, Result, bail};
use pico_args::Arguments;
use serde_json::Value;

use xtask::median;
use xtask::outcome::Outcome;
use xtask::project::Project;
use xtask::record;

/// Microseconds that a step may cost on top of the runtime.
const TARGET_US: f64 = 2.0;

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let rounds: usize = arguments.opt_value_from_str("--rounds")?.unwrap_or(5);
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    let anemeter = project.release("anemeter")?;
    let rounds = rounds.max(1);
    let median = median((0..rounds).map(|_| probe(&anemeter)).collect::<Result<_>>()?);
    let done = format!("{median:.2} µs per step (median of {rounds}), at most {TARGET_US} wanted");
    println!("{done}");
    if recorded {
        record::write(project, "bench overhead", "cargo xtask bench overhead", &format!("{done}.\n"))?;
    }
    if median > TARGET_US {
        bail!("the harness costs more than {TARGET_US} µs per step");
    }
    Ok(Outcome::Checked(done))
}

/// Asks a fresh worker what the harness costs on its own.
fn probe(anemeter: &Path) -> Result<f64> {
    let mut child = Program::new(anemeter)
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start a worker")?;
    let mut stdin = child.stdin.take().context("a pipe to the worker")?;
    stdin.write_all(b"{\"probe\":{\"threads\":1}}\n")?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let lines = String::from_utf8(output.stdout).context("a worker wrote something that is not text")?;
    overhead(&lines).with_context(|| format!("a worker said no overhead: {lines}"))
}

fn overhead(lines: &str) -> Option<f64> {
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| message["probed"]["overhead_us_per_step"].as_f64()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_found_among_the_messages() {
        let lines = "{\"canary\":{\"ms\":1.0}}\n{\"probed\":{\"overhead_us_per_step\":0.5}}\n";
        assert_eq!(overhead(lines), Some(0.5));
        assert_eq!(overhead("rubbish\n"), None);
    }
}
