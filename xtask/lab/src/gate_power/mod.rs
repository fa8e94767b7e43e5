//! `cargo xtask gate-power`: how often the gate is wrong, found out by simulating machines and asking the gate itself.

mod machine;
mod rules;
mod score;
mod simulate;

use anyhow::{Result, bail};
use pico_args::Arguments;

use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;
use xtask::record;

const DOCUMENT: &str = "docs/gates.md";

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    if cfg!(debug_assertions) {
        return in_release(project, arguments);
    }
    let gates: usize = arguments.opt_value_from_str("--gates")?.unwrap_or(300);
    let seed: u64 = arguments.opt_value_from_str("--seed")?.unwrap_or(1);
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    let rows = score::score(gates.max(1), seed)?;
    let table = score::table(&rows);
    println!("{table}");
    if recorded {
        let body = format!(
            "{} gates per cell, {} where nothing changed.\n\n{table}",
            gates,
            gates * score::TIMES_UNCHANGED
        );
        record::write_to(
            project,
            DOCUMENT,
            "gate-power",
            &format!("cargo xtask gate-power --gates {gates}"),
            &body,
        )?;
    }
    let misses = score::misses(&rows);
    if !misses.is_empty() {
        bail!("{}", misses.join("\n"));
    }
    Ok(Outcome::Checked(format!("{} cells, all within their error rates", rows.len() * 3)))
}

/// Simulation is arithmetic: the same task, built for speed.
fn in_release(project: &Project, arguments: Arguments) -> Result<Outcome> {
    // Without what the oracle needs, which is most of what there is to compile.
    let build = ["build", "--release", "--quiet", "--package", "lab", "--no-default-features"];
    succeed(&mut project.cargo(&build))?;
    let program = project.target.join("release").join(format!("lab{}", std::env::consts::EXE_SUFFIX));
    succeed(project.command(program).arg("gate-power").args(arguments.finish()))?;
    Ok(Outcome::Checked("error rates as wanted".to_owned()))
}
