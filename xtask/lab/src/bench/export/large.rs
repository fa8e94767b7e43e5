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

const MOST_SECONDS_TO_INSPECT: f64 = 1.0;

/// What is exported, and as what.
pub(super) struct Wanted {
    pub(super) precision: Option<String>,
    /// Core AI assets in place of packages.
    pub(super) as_assets: bool,
    /// Layers of the checkpoint, where the disk does not hold all.
    pub(super) layers: Option<usize>,
}

/// Exports the checkpoint as fp16, against a copy of its shards, or at another precision.
pub(super) fn measure(project: &Project, folder: &Path, wanted: &Wanted) -> Result<Vec<Line>> {
    println!("building for speed");
    let program = project.release("anemeter")?;
    let checkpoint = folder.join("checkpoint");
    println!("making a checkpoint");
    let shards = Sizes { layers: wanted.layers.unwrap_or(SIZES.layers), ..SIZES }.write(&checkpoint)?;
    let precision = wanted.precision.as_deref();
    let bytes: u64 = shards.iter().map(|path| Ok(fs::metadata(path)?.len())).sum::<Result<u64>>()?;
    let output = folder.join("exported");
    println!("exporting");
    let (format, chunks) = if wanted.as_assets { ("coreai", "1") } else { ("coreml", "auto") };
    let arguments = [
        "export".as_ref(),
        checkpoint.as_path(),
        "-o".as_ref(),
        &output,
        "--chunks".as_ref(),
        chunks.as_ref(),
        "--precision".as_ref(),
        precision.unwrap_or("fp16").as_ref(),
        "--format".as_ref(),
        format.as_ref(),
    ];
    let export = run(project, &[&[program.as_path()][..], &arguments].concat())?;
    let manifest = Bundle::open(&output)?.manifest().clone();
    let written: u64 = manifest.chunks.iter().map(|chunk| chunk.file.bytes).sum();
    let inspected = match manifest.chunks.first().filter(|_| wanted.as_assets) {
        Some(chunk) => {
            let path = output.join(&chunk.file.name);
            Some(run(project, &[program.as_path(), "inspect".as_ref(), &path])?)
        }
        None => None,
    };
    fs::remove_dir_all(&output)?;
    let (first, most) = match precision {
        Some(precision) => (compressed(&export, precision, bytes, written), MOST_MEMORY_COMPRESSING),
        None => {
            println!("copying");
            let kind = if wanted.as_assets { "one fp16 asset" } else { "fp16 chunks" };
            (against_copy(&export, (bytes, kind), time_copy(project, &shards, folder)?), MOST_MEMORY)
        }
    };
    let inspected = inspected.map(|inspected| Line {
        what: format!("`inspect` of the asset of {:.1} GB", written as f64 / 1e9),
        measured: format!("{:.2} s, {:.0} MB", inspected.seconds, inspected.peak_bytes as f64 / 1e6),
        target: format!("under {MOST_SECONDS_TO_INSPECT} s"),
        met: inspected.seconds < MOST_SECONDS_TO_INSPECT,
    });
    let lines = [
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
    ];
    Ok(lines.into_iter().chain(inspected).collect())
}

fn against_copy(export: &Measured, (bytes, kind): (u64, &str), copy: f64) -> Line {
    let speed = |seconds: f64| bytes as f64 / seconds / 1e6;
    let share = copy / export.seconds;
    Line {
        what: format!(
            "export of {:.1} GB of bf16 to {kind}, as a share of a copy with fsync",
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
        assert!(against_copy(&export, (18_000_000_000, "fp16 chunks"), 12.0).met);
        assert!(!against_copy(&export, (18_000_000_000, "fp16 chunks"), 11.9).met);
    }
}
