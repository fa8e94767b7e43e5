//! `cargo xtask bench decode`: how fast the CPU runtime decodes and prefills a real model, against what the
//! machine can do.

mod inputs;
mod measure;
mod package;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;

/// The argument that makes this process the measuring one, which is built for speed; not for users.
const MEASURE: &str = "--measure";

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let is_worker = arguments.contains(MEASURE);
    let checkpoint: PathBuf = arguments.value_from_str("--checkpoint")?;
    let lengths: String = arguments.opt_value_from_str("--lengths")?.unwrap_or_else(|| "512,2048".to_owned());
    let bench = measure::Bench {
        rounds: arguments.opt_value_from_str("--rounds")?.unwrap_or(5),
        tokens: arguments.opt_value_from_str("--tokens")?.unwrap_or(32),
        threads: arguments.opt_value_from_str("--threads")?.unwrap_or(2),
        profile: arguments.opt_value_from_str("--profile")?,
    };
    xtask::finish(arguments)?;
    ensure!(bench.rounds > 0 && bench.tokens > 0 && bench.threads > 0, "counts must be more than 0");
    if is_worker {
        let lengths: Vec<usize> = lengths
            .split(',')
            .map(|length| length.parse().with_context(|| format!("`{length}` is not a length")))
            .collect::<Result<_>>()?;
        let wanted = package::Wanted { checkpoint: &checkpoint, lengths: &lengths, query: 64 };
        let package = package::make(&project.target.join("bench-decode"), &wanted)?;
        print!("{}", bench.run(&package, &lengths)?);
        return Ok(Outcome::Checked(String::new()));
    }
    println!("building for speed");
    let mut worker = project.command(project.release("lab")?);
    worker.args(["bench", "decode", MEASURE, "--checkpoint"]).arg(&checkpoint).args(["--lengths", &lengths]);
    worker.args(["--rounds", &bench.rounds.to_string(), "--tokens", &bench.tokens.to_string()]);
    worker.args(["--threads", &bench.threads.to_string()]);
    if let Some(function) = &bench.profile {
        worker.args(["--profile", function]);
    }
    succeed(&mut worker)?;
    Ok(Outcome::Checked(String::new()))
}
