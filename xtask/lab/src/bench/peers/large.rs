//! A made-up model of more than a GB: what memory holds beside large weights, and how soon they answer.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::engine::{OURS, Place};
use super::limits;
use super::rounds::{Series, line, sample};
use super::sample::Sample;
use super::table::{memory, verdicts};
use super::targets::{MOST_MEMORY, Target, Verdict, Wanted, target};
use super::{THREADS, ours, workload};
use crate::made_up::Sizes;
use xtask::outcome::Outcome;
use xtask::project::Project;
use xtask::record;

/// As many tokens as the model has whose tokens it is given.
const SIZES: Sizes =
    Sizes { hidden: 1024, wide: 4096, kv: 256, layers: 32, vocabulary: 49_152, layers_per_shard: 32 };
const PRECISIONS: [&str; 4] = ["fp16", "int8", "int4:block=32", "lut4:group=16"];
const MOST_SECONDS: f64 = 1.0;

/// A precision and its rounds.
type Row = (&'static str, Series);

pub(super) fn run(project: &Project, model: PathBuf, rounds: usize, recorded: bool) -> Result<Outcome> {
    let rows = measure(&Place::new(project, model, workload::SEQ_LENS)?, rounds)?;
    let targets = judge(&rows);
    let text = format!(
        "{}; {THREADS} threads, medians of {rounds} rounds (range), each a fresh process, files in the system's \
         cache.\n\n{}\n{}{}",
        limits::processor(),
        table(&rows),
        memory(rows.iter().map(|(precision, series)| (*precision, series))),
        verdicts(&targets)
    );
    println!("\n{text}");
    if recorded {
        let command = format!("cargo xtask bench peers --large --rounds {rounds}");
        record::write(project, "bench peers --large", &command, &text)?;
    }
    if targets.iter().any(|target| target.verdict == Verdict::Missed) {
        bail!("a target is missed");
    }
    Ok(Outcome::Checked(format!("{} targets in {rounds} rounds", targets.len())))
}

/// Makes the model and measures it at every precision.
fn measure(place: &Place<'_>, rounds: usize) -> Result<Vec<Row>> {
    let workload = workload::usual(place)?;
    let folder = place.folder.join("large");
    let checkpoint = folder.join("checkpoint");
    println!("making a checkpoint");
    SIZES.write(&checkpoint)?;
    let mut rows = Vec::new();
    for precision in PRECISIONS {
        let ready = ours::export(place, &checkpoint, precision, folder.join("exported"))?;
        let mut series = Series { weight_bytes: ready.weight_bytes, samples: Vec::new() };
        // The first one brings the weights into the system's cache.
        for round in 0..=rounds {
            let sample = sample(place, &ready, &workload)?;
            println!("{}", line(precision, &sample));
            if round > 0 {
                series.samples.push(sample);
            }
        }
        rows.push((precision, series));
    }
    fs::remove_dir_all(&folder)?;
    Ok(rows)
}

fn judge(rows: &[Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    for (precision, series) in rows {
        let seconds = series.samples.iter().map(|sample| sample.first_token_seconds).collect();
        let what = format!("seconds from load to first token: {OURS} {precision}");
        targets.push(target(what, Ok(seconds), Wanted::AtMost(MOST_SECONDS)));
    }
    for (precision, series) in rows {
        let what = format!("peak memory: {OURS} {precision} / its weights");
        targets.push(target(what, Ok(series.memory()), Wanted::AtMost(MOST_MEMORY)));
    }
    targets
}

fn table(rows: &[Row]) -> String {
    let mut text =
        "| weights | MB | load to first token, ms | decode, tokens/s | prefill, tokens/s | peak memory at \
                    decode, MB |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for (precision, series) in rows {
        let shown = |figure: fn(&Sample) -> f64, digits| series.spread(figure).text(digits);
        text += &format!(
            "| {precision} | {:.0} | {} | {} | {} | {} |\n",
            series.weight_bytes as f64 / 1e6,
            shown(|sample| sample.first_token_seconds * 1e3, 0),
            shown(Sample::decode_speed, 1),
            shown(Sample::prefill_speed, 0),
            shown(|sample| sample.peak_bytes as f64 / 1e6, 0),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::sample::testing;
    use super::*;

    fn rows() -> [Row; 1] {
        let samples = vec![
            testing::sample(20.0, 100.0, 1_200_000_000, 0.4),
            testing::sample(22.0, 110.0, 1_260_000_000, 1.8),
        ];
        [("fp16", Series { weight_bytes: 1_000_000_000, samples })]
    }

    #[test]
    fn a_row_shows_all_figures() {
        let row = "| fp16 | 1000 | 1100 (400–1800) | 21.0 (20.0–22.0) | 105 (100–110) | 1230 (1200–1260) |";
        assert_eq!(table(&rows()).lines().last(), Some(row));
    }

    #[test]
    fn too_late_and_too_large_are_missed() {
        let verdicts: Vec<Verdict> = judge(&rows()).into_iter().map(|target| target.verdict).collect();
        assert_eq!(verdicts, [Verdict::Missed, Verdict::Missed]);
    }
}
