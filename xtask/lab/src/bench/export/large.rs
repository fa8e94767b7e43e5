//! A made-up checkpoint of about 9 billion parameters, exported at the speed of the disk.

use std::fs;
use std::path::Path;

use anemeter::bundle::Bundle;
use anyhow::Result;

use super::Line;
use super::measured::{Measured, run, time_copy};
use crate::made_up::Sizes;
use xtask::project::Project;

const SIZES: Sizes =
    Sizes { hidden: 4096, wide: 14336, kv: 1024, layers: 36, vocabulary: 128_256, layers_per_shard: 9 };
const LEAST_SHARE: f64 = 0.6;
const MOST_MEMORY: u64 = 1_500_000_000;
const MOST_MEMORY_COMPRESSING: u64 = 2_000_000_000;

/// Exports the checkpoint as fp16, against a copy of its shards, or at another precision.
pub(super) fn measure(project: &Project, folder: &Path, precision: Option<&str>) -> Result<Vec<Line>> {
    println!("building for speed");
    let program = project.release("anemeter")?;
    let checkpoint = folder.join("checkpoint");
    println!("making a checkpoint");
    let shards = SIZES.write(&checkpoint)?;
    let bytes: u64 = shards.iter().map(|path| Ok(fs::metadata(path)?.len())).sum::<Result<u64>>()?;
    let output = folder.join("exported");
    println!("exporting");
    let wanted = precision.unwrap_or("fp16");
    let arguments = [
        "export".as_ref(),
        checkpoint.as_path(),
        "-o".as_ref(),
        &output,
        "--chunks".as_ref(),
        "auto".as_ref(),
        "--precision".as_ref(),
        wanted.as_ref(),
    ];
    let export = run(project, &[&[program.as_path()][..], &arguments].concat())?;
    let manifest = Bundle::open(&output)?.manifest().clone();
    let written = manifest.chunks.iter().map(|chunk| chunk.file.bytes).sum();
    fs::remove_dir_all(&output)?;
    let (first, most) = match precision {
        Some(precision) => (compressed(&export, precision, bytes, written), MOST_MEMORY_COMPRESSING),
        None => {
            println!("copying");
            (against_copy(&export, bytes, time_copy(project, &shards, folder)?), MOST_MEMORY)
        }
    };
    Ok(vec![
        first,
        Line {
            what: "its peak resident memory".to_owned(),
            measured: format!("{:.0} MB", export.peak_bytes as f64 / 1e6),
            target: format!("under {} MB", most / 1_000_000),
            met: export.peak_bytes < most,
        },
        Line {
            what: "its CPU time".to_owned(),
            measured: format!("{:.0} s in {:.0} s", export.cpu_seconds, export.seconds),
            target: "none".to_owned(),
            met: true,
        },
    ])
}

fn against_copy(export: &Measured, bytes: u64, copy: f64) -> Line {
    let speed = |seconds: f64| bytes as f64 / seconds / 1e6;
    let share = copy / export.seconds;
    Line {
        what: format!(
            "export of {:.1} GB of bf16 to fp16 chunks, as a share of a copy with fsync",
            bytes as f64 / 1e9
        ),
        measured: format!(
            "{:.0} %: {:.0} MB/s against {:.0} MB/s",
            share * 100.0,
            speed(export.seconds),
            speed(copy)
        ),
        target: format!("at least {:.0} %", LEAST_SHARE * 100.0),
        met: share >= LEAST_SHARE,
    }
}

fn compressed(export: &Measured, precision: &str, bytes: u64, written: u64) -> Line {
    Line {
        what: format!("export of {:.1} GB of bf16 to {precision} chunks", bytes as f64 / 1e9),
        measured: format!(
            "{:.0} s, {:.0} MB/s of bf16; {:.1} GB written, {:.2} times smaller",
            export.seconds,
            bytes as f64 / export.seconds / 1e6,
            written as f64 / 1e9,
            bytes as f64 / written as f64
        ),
        target: "none".to_owned(),
        met: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_was_measured() {
        let export = Measured { seconds: 20.0, cpu_seconds: 30.0, peak_bytes: 1, status: 0 };
        let line = compressed(&export, "int8", 18_000_000_000, 9_000_000_000);
        assert_eq!(line.what, "export of 18.0 GB of bf16 to int8 chunks");
        assert_eq!(line.measured, "20 s, 900 MB/s of bf16; 9.0 GB written, 2.00 times smaller");
        assert!(against_copy(&export, 18_000_000_000, 12.0).met);
        assert!(!against_copy(&export, 18_000_000_000, 11.9).met);
    }
}
