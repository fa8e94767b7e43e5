//! `cargo xtask bench compress`: compression against coremltools.optimize on the same package in one run.

mod package;
mod quality;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use pico_args::Arguments;

use crate::bench::export::measured::{Measured, parse};
use crate::python;
use quality::Comparison;
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};
use xtask::record;

/// What is compared, and how many times less CPU it must take.
const KINDS: &[(&str, f64)] = &[
    ("int8", 20.0),
    ("int4", 20.0),
    ("lut4:tensor", 50.0),
    ("lut6:tensor", 50.0),
    ("lut4:group=16", 50.0),
    ("lut6:group=16", 50.0),
];
/// Most share of the other's memory.
const MOST_MEMORY: f64 = 0.25;

/// Both sides of one kind.
struct Row {
    kind: &'static str,
    least_ratio: f64,
    ours: Measured,
    theirs: Measured,
    quality: Comparison,
}

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let checkpoint: Option<PathBuf> = arguments.opt_value_from_str("--checkpoint")?;
    let kinds: Option<String> = arguments.opt_value_from_str("--kinds")?;
    let layers: Option<usize> = arguments.opt_value_from_str("--layers")?;
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    let what = "compression";
    let Some(checkpoint) = checkpoint.filter(|path| path.exists()) else {
        return Ok(Outcome::not_checked(what, "--checkpoint names no checkpoint"));
    };
    let Some(python) = python::interpreter_for_compression(project)? else {
        return Ok(Outcome::not_checked(what, "there is no python3"));
    };
    let chosen = choose(kinds.as_deref())?;
    println!("building for speed");
    let program = project.release("anemeter")?;
    let folder = project.target.join("bench-compress");
    make_empty(&folder)?;
    let original = folder.join("original.mlpackage");
    let bytes = package::write(&checkpoint, layers, &original)?;
    println!("{}: {:.1} MB of fp16", original.display(), bytes as f64 / 1e6);
    let mut rows = Vec::new();
    for (kind, least_ratio) in chosen {
        let row =
            compare(project, &Tools { python: &python, program: &program }, &original, kind, least_ratio)?;
        println!("{}", row.line());
        rows.push(row);
    }
    let text = format!("{}\n{}", table(&rows), gains(&rows));
    println!("\n{text}");
    if recorded {
        let layers = layers.map(|count| format!(" --layers {count}")).unwrap_or_default();
        let name = checkpoint.file_name().unwrap_or_default().to_string_lossy();
        let command = format!("cargo xtask bench compress --checkpoint {name}{layers}");
        let size = format!("{:.1} MB of fp16.", bytes as f64 / 1e6);
        record::write(project, "bench compress", &command, &format!("{size}\n\n{text}"))?;
    }
    match rows.iter().find(|row| !row.meets_targets()) {
        Some(row) => bail!("{} misses a target", row.kind),
        None => Ok(Outcome::Checked(String::new())),
    }
}

fn choose(kinds: Option<&str>) -> Result<Vec<(&'static str, f64)>> {
    let Some(kinds) = kinds else { return Ok(KINDS.to_vec()) };
    let known = || KINDS.iter().map(|kind| kind.0).collect::<Vec<_>>().join(", ");
    let find = |wanted: &str| {
        let found = KINDS.iter().find(|kind| kind.0 == wanted).copied();
        found.with_context(|| format!("`{wanted}` is none of {}", known()))
    };
    kinds.split(',').map(find).collect()
}

struct Tools<'a> {
    python: &'a Path,
    program: &'a Path,
}

fn compare(
    project: &Project,
    tools: &Tools<'_>,
    original: &Path,
    kind: &'static str,
    least_ratio: f64,
) -> Result<Row> {
    let folder = original.parent().context("the package is in a folder")?;
    let (ours, theirs) = (folder.join("ours.mlpackage"), folder.join("theirs.mlpackage"));
    let config = folder.join("precision.yaml");
    // Every weight alike, as coremltools does.
    fs::write(
        &config,
        format!("precision: {{default: fp16, rules: [{{match: '*', precision: '{kind}'}}]}}\n"),
    )?;
    let mut command = project.command(tools.python);
    command.arg("xtask/python/measure.py").arg(tools.program).arg("compress").arg(original);
    let ours_usage = parse(command.arg("-o").arg(&ours).arg("--overwrite").arg("--rules").arg(&config))?;
    let mut command = project.command(tools.python);
    command.arg("xtask/python/measure.py").arg(tools.python).arg("xtask/python/coremltools_compress.py");
    let theirs_usage = parse(command.arg(kind).arg(original).arg(&theirs))?;
    let quality = quality::compare(original, &ours, &theirs)?;
    fs::remove_dir_all(&theirs)?;
    Ok(Row { kind, least_ratio, ours: ours_usage, theirs: theirs_usage, quality })
}

impl Row {
    fn cpu_ratio(&self) -> f64 {
        self.theirs.cpu_seconds / self.ours.cpu_seconds
    }

    fn memory_share(&self) -> f64 {
        self.ours.peak_bytes as f64 / self.theirs.peak_bytes as f64
    }

    fn meets_targets(&self) -> bool {
        self.cpu_ratio() >= self.least_ratio
            && self.memory_share() <= MOST_MEMORY
            && self.quality.is_no_worse()
    }

    fn line(&self) -> String {
        format!(
            "{}: {:.2} s of CPU against {:.2} s ({:.1} times less; {:.2} s against {:.2} s by the clock), {:.0} MB \
             against {:.0} MB",
            self.kind,
            self.ours.cpu_seconds,
            self.theirs.cpu_seconds,
            self.cpu_ratio(),
            self.ours.seconds,
            self.theirs.seconds,
            self.ours.peak_bytes as f64 / 1e6,
            self.theirs.peak_bytes as f64 / 1e6,
        )
    }
}

/// Which weights gain least and most in each kind.
fn gains(rows: &[Row]) -> String {
    rows.iter().map(|row| format!("- {}\n", row.quality.text(row.kind))).collect()
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| precision | CPU s | coremltools | times less | target | peak MB | coremltools | mean SNR dB | coremltools | \
         weights worse | |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        text += &format!(
            "| {} | {:.2} | {:.2} | {:.1} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {} of {} | {} |\n",
            row.kind,
            row.ours.cpu_seconds,
            row.theirs.cpu_seconds,
            row.cpu_ratio(),
            row.least_ratio,
            row.ours.peak_bytes as f64 / 1e6,
            row.theirs.peak_bytes as f64 / 1e6,
            row.quality.mean_ours(),
            row.quality.mean_theirs(),
            row.quality.worse().len(),
            row.quality.weights.len(),
            if row.meets_targets() { "met" } else { "MISSED" },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_are_named() {
        assert_eq!(choose(Some("int8,lut4:tensor")).unwrap(), [("int8", 20.0), ("lut4:tensor", 50.0)]);
        let error = choose(Some("int3")).unwrap_err().to_string();
        assert!(error.starts_with("`int3` is none of int8, int4"), "{error}");
    }

    #[test]
    fn each_target_can_be_missed() {
        let usage = |cpu_seconds, peak_bytes| Measured { cpu_seconds, seconds: 1.0, peak_bytes, status: 0 };
        let row = |ours: Measured, snr: f64| Row {
            kind: "int8",
            least_ratio: 20.0,
            ours,
            theirs: usage(20.0, 1000),
            quality: Comparison { weights: vec![("w".to_owned(), snr, 40.0)] },
        };
        assert!(row(usage(1.0, 250), 40.1).meets_targets());
        assert!(!row(usage(1.1, 250), 40.1).meets_targets());
        assert!(!row(usage(1.0, 251), 40.1).meets_targets());
        assert!(!row(usage(1.0, 250), 39.9).meets_targets());
    }
}
