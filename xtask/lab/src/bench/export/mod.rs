//! `cargo xtask bench export`: what an export takes, against coremltools and against a plain copy.

mod large;
pub(crate) mod measured;
mod smollm2;

use std::fs;

use anyhow::{Result, bail};
use pico_args::Arguments;

use large::Wanted;
pub(crate) use smollm2::write_fp16;
use xtask::outcome::Outcome;
use xtask::project::Project;
use xtask::record;

/// One line of the table: what, how much, the target and whether it is met.
pub(super) struct Line {
    what: String,
    measured: String,
    target: String,
    met: bool,
}

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let large = arguments.contains("--large");
    let precision: Option<String> = arguments.opt_value_from_str("--precision")?;
    let format: Option<String> = arguments.opt_value_from_str("--format")?;
    let layers: Option<usize> = arguments.opt_value_from_str("--layers")?;
    let rounds: usize = arguments.opt_value_from_str("--rounds")?.unwrap_or(5);
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    if precision.is_some() && !large {
        bail!("--precision goes with --large");
    }
    if !large && (format.is_some() || layers.is_some()) {
        bail!("--format and --layers go with --large");
    }
    let as_assets = match format.as_deref() {
        None | Some("coreml") => false,
        Some("coreai") => true,
        Some(other) => bail!("--format is {other}; coreml and coreai are possible"),
    };
    let folder = project.target.join("bench export");
    fs::create_dir_all(&folder)?;
    let lines = match large {
        true => {
            large::measure(project, &folder, &Wanted { precision: precision.clone(), as_assets, layers })?
        }
        false => match smollm2::measure(project, &folder, rounds.max(1))? {
            Ok(lines) => lines,
            Err(why) => return Ok(Outcome::not_checked("the export of SmolLM2", &why)),
        },
    };
    fs::remove_dir_all(&folder)?;
    let table = table(&lines);
    println!("\n{table}");
    if recorded {
        let (task, precision) = match (large, precision) {
            (false, _) => ("bench export", String::new()),
            (true, None) if as_assets => ("bench export --large --format coreai", String::new()),
            (true, None) => ("bench export --large", String::new()),
            (true, Some(precision)) => ("bench export --large --precision", format!(" {precision}")),
        };
        let more = layers.map(|layers| format!(" --layers {layers}")).unwrap_or_default();
        let command = format!("cargo xtask {task}{precision}{more}");
        record::write(project, task, &command, &format!("\n\n{table}"))?;
    }
    if lines.iter().any(|line| !line.met) {
        bail!("a target is missed");
    }
    Ok(Outcome::Checked(String::new()))
}

fn table(lines: &[Line]) -> String {
    let mut text = "| what | measured | target | |\n|---|---|---|---|\n".to_owned();
    for Line { what, measured, target, met } in lines {
        let verdict = if *met { "met" } else { "MISSED" };
        text += &format!("| {what} | {measured} | {target} | {verdict} |\n");
    }
    text
}
