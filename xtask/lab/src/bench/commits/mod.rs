//! `cargo xtask bench commits`: is this commit as fast as another? Both programs in turns, on a model that is made up here.

mod program;
mod table;

use std::fs;

use anyhow::{Result, bail, ensure};
use pico_args::Arguments;

use super::build::{BASE, commit};
use crate::made_up::Sizes;
use program::{Bench, Program, Sample};
use table::{FEWEST, Verdict, rows};
use xtask::outcome::Outcome;
use xtask::project::Project;
use xtask::record;

const ROUNDS: usize = 10;
/// Large enough that a prediction takes far longer than starting one.
const SIZES: Sizes =
    Sizes { hidden: 1024, wide: 2816, kv: 256, layers: 12, vocabulary: 16_384, layers_per_shard: 12 };

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let base: Option<String> = arguments.opt_value_from_str("--base")?;
    let rounds: usize = arguments.opt_value_from_str("--rounds")?.unwrap_or(ROUNDS);
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    ensure!(rounds >= FEWEST, "an interval takes {FEWEST} rounds");
    let base = base.as_deref().unwrap_or(BASE);
    let commits = [commit(project, "HEAD")?, commit(project, base)?];
    let folder = project.target.join("bench-commits");
    fs::create_dir_all(&folder)?;
    let [head, other] = &commits;
    let programs = [Program::build(project, &folder, head)?, Program::build(project, &folder, other)?];
    println!("making a checkpoint");
    let checkpoint = folder.join("checkpoint");
    let shards = SIZES.write(&checkpoint)?;
    let bytes = shards.iter().map(|shard| Ok(fs::metadata(shard)?.len())).sum::<Result<u64>>()?;
    let bench = Bench { project, checkpoint, folder: folder.clone(), vocabulary: SIZES.vocabulary };
    let samples = measure(&bench, &programs, rounds)?;
    bench.remove(&programs)?;
    let rows = rows(&samples)?;
    let text = table::text(
        &rows,
        &commits,
        &format!("{rounds} interleaved rounds on {} MB of bf16", bytes / 1_000_000),
    );
    println!("\n{text}");
    if recorded {
        let command = format!("cargo xtask bench commits --base {base} --rounds {rounds}");
        record::write(project, "bench commits", &command, &text)?;
    }
    let all = |verdict: Verdict| {
        let found = rows.iter().filter(|row| row.verdict() == verdict);
        found.map(|row| row.what).collect::<Vec<_>>().join(", ")
    };
    let (slower, open) = (all(Verdict::Missed), all(Verdict::Open));
    ensure!(slower.is_empty(), "slower than {other}: {slower}");
    if !open.is_empty() {
        bail!("{rounds} rounds do not settle {open}");
    }
    Ok(Outcome::Checked(format!("{head} is as fast as {other}")))
}

/// So many rounds of both, in an order that alternates, so that a machine that gets slower is unfair to none.
fn measure(bench: &Bench<'_>, programs: &[Program; 2], rounds: usize) -> Result<[Vec<Sample>; 2]> {
    let mut samples = [Vec::new(), Vec::new()];
    // The first round brings files into the system's cache and does not count.
    for round in 0..=rounds {
        for at in order(round) {
            let sample = bench.sample(&programs[at])?;
            println!("round {round} of {rounds}, {}: {sample}", programs[at].commit);
            if round > 0 {
                samples[at].push(sample);
            }
        }
    }
    Ok(samples)
}

fn order(round: usize) -> [usize; 2] {
    if round.is_multiple_of(2) { [1, 0] } else { [0, 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate() {
        assert_eq!([1, 2, 3, 4].map(order).concat(), [0, 1, 1, 0, 0, 1, 1, 0]);
    }
}
