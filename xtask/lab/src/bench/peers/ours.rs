//! This runtime: a bundle exported by the program, generated from by the library as its own commands do.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anemeter::bundle::Bundle;
use anemeter::generate::sample::likeliest;
use anemeter::generate::{Driver, SystemClock, sessions};
use anemeter::package::Package;
use anemeter::runtime::{self, LoadOptions};
use anemeter::vocabulary::KvForm;
use anyhow::{Context, Result};

use super::engine::{Place, Ready};
use super::resident::Resident;
use super::sample::{Growth, Point, Sample};
use super::workload::{STEPS, Workload};
use super::{ROUND, TASK, THREADS, llama_cpp};
use crate::bench::quality::every_weight;
use xtask::process::read;

/// After a precision: embedding and head have it too.
const EVERY: &str = " for every weight";

pub(super) fn set_up(place: &Place<'_>, weights: &'static str) -> Result<Ready> {
    export(place, &place.checkpoint, weights, bundle(place, weights)?)
}

/// Before the type of a GGUF file whose integers are kept.
const STORED: &str = "stored ";

/// From the file as it was fetched, whose integers are kept.
pub(super) fn set_up_as_fetched(place: &Place<'_>, weights: &'static str) -> Result<Ready> {
    export(place, &place.gguf, weights, bundle(place, weights)?)
}

/// From the file that llama.cpp runs, whose integers are kept: both multiply the same numbers.
pub(super) fn set_up_as_llama_cpp_stores(place: &Place<'_>, weights: &'static str) -> Result<Ready> {
    let kind = weights.strip_prefix(STORED).context("a stored form names a type")?;
    let file = llama_cpp::gguf(place, kind).map_err(|error| error.context(PeerFailed(kind)))?;
    export(place, &file, weights, bundle(place, weights)?)
}

/// There is no file to keep the integers of, because the engine that makes it failed.
#[derive(Debug)]
pub(super) struct PeerFailed(pub(super) &'static str);

impl fmt::Display for PeerFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "llama.cpp made no {} file", self.0)
    }
}

fn bundle(place: &Place<'_>, weights: &str) -> Result<PathBuf> {
    let name = format!("{}-{}", weights.replace([':', '=', ' '], "-"), place.lengths("-"));
    Ok(place.models("anemeter")?.join(name))
}

/// Exports a checkpoint to a bundle that rounds can be measured with.
pub(super) fn export(place: &Place<'_>, checkpoint: &Path, weights: &str, bundle: PathBuf) -> Result<Ready> {
    println!("exporting {weights}");
    let mut export = place.project.command(&place.anemeter);
    export.arg("export").arg(checkpoint).arg("-o").arg(&bundle).arg("--overwrite");
    export.args(["--kv", "io", "--chunks", "1", "--shapes", &place.lengths(",")]);
    match weights.strip_suffix(EVERY) {
        Some(precision) => {
            let config = bundle.with_extension("yaml");
            fs::write(&config, every_weight(precision))?;
            export.arg("--config").arg(config)
        }
        None => export.args(["--precision", weights.split_once(' ').map_or(weights, |(word, _)| word)]),
    };
    read(&mut export)?;
    let opened = Bundle::open(&bundle)?;
    let mut weight_bytes = 0;
    for chunk in &opened.manifest().chunks {
        let package = Package::open(opened.path(&chunk.file.name))?;
        weight_bytes += package.weight_files().iter().map(|file| file.bytes).sum::<u64>();
    }
    let mut command = vec![place.worker.clone().into()];
    command.extend(TASK.map(Into::into));
    command.extend([ROUND.into(), bundle.into()]);
    Ok(Ready { command, weight_bytes })
}

/// Weights that every token of a prompt is multiplied with: all but the table of token vectors, which is the head too.
pub(super) fn layer_parameters(bundle: &Path) -> Result<u64> {
    let bundle = Bundle::open(bundle)?;
    let sizes = bundle.exported()?.architecture;
    let table = (sizes.vocabulary * sizes.hidden) as u64;
    sizes.parameters.checked_sub(table).context("a model has layers")
}

/// One round in this process, as a line of JSON.
pub(super) fn round(bundle: &Path, workload: &Path) -> Result<String> {
    let workload: Workload = serde_json::from_str(&fs::read_to_string(workload)?)?;
    if workload.lengths.is_empty() {
        return Ok(serde_json::to_string(&usual(bundle, &workload)?)?);
    }
    Ok(serde_json::to_string(&growth(bundle, &workload)?)?)
}

fn usual(bundle: &Path, workload: &Workload) -> Result<Sample> {
    let started = Instant::now();
    let mut model = Model::open(bundle)?;
    let token = model.prefill(&workload.prompt)?;
    let first_token_seconds = started.elapsed().as_secs_f64();
    let (tokens, decode_seconds) = model.decode(token, workload.decode)?;
    let (peak_bytes, resident) = (peak_bytes()?, Resident::now(bundle));
    let (_, prefill_seconds) = model.timed_prefill(&workload.long)?;
    Ok(Sample { first_token_seconds, decode_seconds, prefill_seconds, peak_bytes, resident, tokens })
}

fn growth(bundle: &Path, workload: &Workload) -> Result<Growth> {
    let mut model = Model::open(bundle)?;
    let mut growth = Vec::new();
    for &length in &workload.lengths {
        let prompt = workload.long.get(..length - STEPS).context("the long prompt is too short")?;
        let (token, prefill_seconds) = model.timed_prefill(prompt)?;
        let (_, seconds) = model.decode(token, STEPS)?;
        growth.push(Point { length, decode_seconds: seconds / STEPS as f64, prefill_seconds });
    }
    Ok(Growth { growth })
}

struct Model {
    driver: Driver,
}

impl Model {
    fn open(path: &Path) -> Result<Model> {
        let bundle = Bundle::open(path)?;
        let options = LoadOptions { threads: Some(THREADS), ..LoadOptions::default() };
        let sessions = sessions(&bundle, &runtime::cpu(), &options)?;
        let driver = Driver::new(&bundle, sessions, Some(KvForm::Io), Arc::new(SystemClock::default()))?;
        Ok(Model { driver })
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<u32> {
        self.driver.prefill(&[ids], None)?;
        self.next()
    }

    /// The first call makes plans and buffers.
    fn timed_prefill(&mut self, ids: &[u32]) -> Result<(u32, f64)> {
        self.prefill(ids)?;
        let started = Instant::now();
        let token = self.prefill(ids)?;
        Ok((token, started.elapsed().as_secs_f64()))
    }

    fn decode(&mut self, token: u32, count: usize) -> Result<(Vec<u32>, f64)> {
        let mut tokens = vec![token];
        let mut last = token;
        let started = Instant::now();
        for _ in 0..count {
            self.driver.step(&[last])?;
            last = self.next()?;
            tokens.push(last);
        }
        Ok((tokens, started.elapsed().as_secs_f64()))
    }

    fn next(&self) -> Result<u32> {
        likeliest(self.driver.logits(0)).map_err(|problem| anyhow::anyhow!("logits: {problem:?}"))
    }
}

/// The most memory this process ever had resident.
fn peak_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("find VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
