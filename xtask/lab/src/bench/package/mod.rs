//! `cargo xtask bench package`: how fast a large package is written, against a plain copy of the same bytes.

mod worker;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use pico_args::Arguments;

use xtask::outcome::Outcome;
use xtask::process::{read, succeed};
use xtask::project::Project;
use xtask::{median, record};

/// Least share of the speed of a plain copy.
const LEAST_SHARE: f64 = 0.7;
/// Most memory the writing process may have resident, in bytes.
const MOST_MEMORY: u64 = 200_000_000;
/// Most seconds `inspect` may take.
const MOST_INSPECT: f64 = 0.1;
const INSPECT_RUNS: usize = 5;

/// What is read and written.
struct Files {
    source: PathBuf,
    copy: PathBuf,
    package: PathBuf,
}

/// What one round measured.
struct Round {
    copy_seconds: f64,
    write: worker::Measured,
}

/// Everything that was measured.
struct Measurement {
    bytes: u64,
    rounds: Vec<Round>,
    inspect_seconds: f64,
}

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    if let Some(source) = arguments.opt_value_from_str::<_, PathBuf>(worker::FLAG)? {
        worker::run(&source, &arguments.free_from_str::<PathBuf>()?)?;
        return Ok(Outcome::Checked(String::new()));
    }
    let gib: f64 = arguments.opt_value_from_str("--gib")?.unwrap_or(2.0);
    let rounds: usize = arguments.opt_value_from_str("--rounds")?.unwrap_or(6);
    let record = arguments.contains("--record");
    xtask::finish(arguments)?;
    ensure!(gib > 0.0 && rounds > 0, "--gib and --rounds must be more than 0");
    if cfg!(not(target_os = "linux")) {
        return Ok(Outcome::not_checked("package writer", "peak memory is read from Linux's /proc"));
    }
    let bytes = (gib * f64::from(1 << 30)) as u64 / worker::GRAIN * worker::GRAIN;
    let measurement = measure(project, bytes, rounds)?;
    let table = measurement.table();
    println!("\n{table}");
    if record {
        let command = format!("cargo xtask bench package --gib {gib} --rounds {rounds}");
        record::write(project, "bench package", &command, &table)?;
    }
    if !measurement.meets_targets() {
        bail!("a target is missed");
    }
    Ok(Outcome::Checked(String::new()))
}

fn measure(project: &Project, bytes: u64, rounds: usize) -> Result<Measurement> {
    println!("building for speed");
    let program = project.release("anemeter")?;
    let worker = project.release("lab")?;
    let folder = project.target.join("bench");
    fs::create_dir_all(&folder)?;
    let files = Files {
        source: folder.join("source.bin"),
        copy: folder.join("copy.bin"),
        package: folder.join("written.mlpackage"),
    };
    make_source(&files.source, bytes)?;
    // Not counted: the first writes also make the system find memory for its cache.
    time_copy(project, &files)?;
    time_write(project, &worker, &files)?;
    let mut measured = Vec::new();
    for round in 1..=rounds {
        // The order alternates, because one leaves the cache in another state than the other; the last round
        // ends with a package for `inspect`.
        let (copy_seconds, write) = if (rounds - round).is_multiple_of(2) {
            (time_copy(project, &files)?, time_write(project, &worker, &files)?)
        } else {
            let write = time_write(project, &worker, &files)?;
            (time_copy(project, &files)?, write)
        };
        let measured_round = Round { copy_seconds, write };
        println!("round {round}: {}", measured_round.text(bytes));
        measured.push(measured_round);
    }
    let inspect_seconds = time_inspect(project, &program, &files.package)?;
    fs::remove_dir_all(&folder)?;
    Ok(Measurement { bytes, rounds: measured, inspect_seconds })
}

/// Pseudo-random bytes: nothing in them can be shared or compressed.
fn make_source(path: &Path, bytes: u64) -> Result<()> {
    println!("making {}", path.display());
    let mut out = File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut grain = vec![0; worker::GRAIN as usize];
    for _ in 0..bytes / worker::GRAIN {
        for word in grain.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        out.write_all(&grain)?;
    }
    Ok(out.sync_all()?)
}

fn time_copy(project: &Project, files: &Files) -> Result<f64> {
    settle(project, files)?;
    let start = Instant::now();
    fs::copy(&files.source, &files.copy)?;
    File::open(&files.copy)?.sync_all()?;
    Ok(start.elapsed().as_secs_f64())
}

fn time_write(project: &Project, worker: &Path, files: &Files) -> Result<worker::Measured> {
    settle(project, files)?;
    let mut child = project.command(worker);
    child.args(["bench", "package", worker::FLAG]).arg(&files.source).arg(&files.package);
    serde_json::from_str(&read(&mut child)?).context("read what the worker measured")
}

/// Removes what was written and waits until the disk has caught up.
fn settle(project: &Project, files: &Files) -> Result<()> {
    if files.package.exists() {
        fs::remove_dir_all(&files.package)?;
    }
    if files.copy.exists() {
        fs::remove_file(&files.copy)?;
    }
    succeed(&mut project.command("sync"))
}

fn time_inspect(project: &Project, program: &Path, package: &Path) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..INSPECT_RUNS {
        let mut inspect = project.command(program);
        inspect.arg("inspect").arg(package).stdout(Stdio::null());
        let start = Instant::now();
        succeed(&mut inspect)?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(times))
}

impl Round {
    /// Speed of writing as a share of the speed of copying.
    fn share(&self) -> f64 {
        self.copy_seconds / self.write.seconds
    }

    fn text(&self, bytes: u64) -> String {
        let speed = |seconds: f64| bytes as f64 / seconds / 1e6;
        format!(
            "copy {:.0} MB/s, write {:.0} MB/s ({:.0} % of the copy), peak memory {:.0} MB",
            speed(self.copy_seconds),
            speed(self.write.seconds),
            self.share() * 100.0,
            self.write.peak_bytes as f64 / 1e6,
        )
    }
}

impl Measurement {
    fn share(&self) -> f64 {
        median(self.rounds.iter().map(Round::share).collect())
    }

    fn peak_bytes(&self) -> u64 {
        self.rounds.iter().map(|round| round.write.peak_bytes).max().unwrap_or(u64::MAX)
    }

    /// Whether each of the three targets is met.
    fn verdicts(&self) -> [bool; 3] {
        [self.share() >= LEAST_SHARE, self.peak_bytes() < MOST_MEMORY, self.inspect_seconds < MOST_INSPECT]
    }

    fn meets_targets(&self) -> bool {
        self.verdicts().iter().all(|met| *met)
    }

    fn table(&self) -> String {
        let [share, memory, inspect] = self.verdicts().map(|met| if met { "met" } else { "MISSED" });
        let speed = |seconds: fn(&Round) -> f64| {
            self.bytes as f64 / median(self.rounds.iter().map(seconds).collect()) / 1e6
        };
        let mut text = format!(
            "{:.2} GiB of fp16 weights in {} constants, {} rounds.\n\n",
            self.bytes as f64 / f64::from(1 << 30),
            worker::TENSORS,
            self.rounds.len()
        );
        text += "| what | measured | target | |\n|---|---|---|---|\n";
        text += &format!(
            "| write, as a share of a copy with fsync (median) | {:.0} %: {:.0} MB/s against {:.0} MB/s | \
             at least {:.0} % | {share} |\n",
            self.share() * 100.0,
            speed(|round| round.write.seconds),
            speed(|round| round.copy_seconds),
            LEAST_SHARE * 100.0,
        );
        text += &format!(
            "| peak resident memory of the writing process (largest) | {:.0} MB | under {} MB | {memory} |\n",
            self.peak_bytes() as f64 / 1e6,
            MOST_MEMORY / 1_000_000,
        );
        text + &format!(
            "| `anemeter inspect` of the written package (median of {INSPECT_RUNS}) | {:.1} ms | under {:.0} ms | \
             {inspect} |\n",
            self.inspect_seconds * 1e3,
            MOST_INSPECT * 1e3,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(write_seconds: f64, peak_bytes: u64, inspect_seconds: f64) -> Measurement {
        let round = |factor: f64| Round {
            copy_seconds: factor,
            write: worker::Measured { seconds: write_seconds * factor, peak_bytes },
        };
        Measurement { bytes: 1 << 30, rounds: vec![round(1.0), round(2.0), round(1.5)], inspect_seconds }
    }

    #[test]
    fn each_target_can_be_missed() {
        assert!(measurement(1.25, 50_000_000, 0.02).meets_targets());
        assert_eq!(measurement(1.5, 50_000_000, 0.02).verdicts(), [false, true, true]);
        assert_eq!(measurement(1.0, 200_000_000, 0.02).verdicts(), [true, false, true]);
        assert_eq!(measurement(1.0, 50_000_000, 0.2).verdicts(), [true, true, false]);
    }

    #[test]
    fn the_table_says_what_was_measured() {
        let table = measurement(1.25, 50_000_000, 0.02).table();
        assert!(table.contains("| 80 %: 573 MB/s against 716 MB/s | at least 70 % | met |"), "{table}");
        assert!(table.contains("| 50 MB | under 200 MB | met |"), "{table}");
        assert!(table.contains("| 20.0 ms | under 100 ms | met |"), "{table}");
    }
}
