//! llama.cpp as npm's node-llama-cpp packages carry it, with models made by its own quantiser.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;

use super::engine::{Place, Ready};
use xtask::process::{read, works};

const VERSION: &str = "3.22.1";
const SCRIPT: &str = "llama_cpp.py";

pub(super) fn set_up(place: &Place<'_>, weights: &'static str) -> Result<Ready> {
    let libraries = install(place)?;
    let model = model(place, &libraries, weights)?;
    let mut command = place.script(SCRIPT)?;
    let weight_bytes = fs::metadata(&model)?.len();
    command.extend(["round".into(), libraries.into(), model.into()]);
    Ok(Ready { command, weight_bytes })
}

/// How a model of llama.cpp's own making predicts a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// The whole file of the model.
    pub(crate) bytes: u64,
    pub(crate) tokens: usize,
    /// Sum over the tokens that were scored.
    pub(crate) nats: f64,
}

/// Scores tokens in windows that overlap by half.
pub(super) fn score(
    place: &Place<'_>,
    weights: &'static str,
    (ids, window): (&[u32], usize),
) -> Result<Score> {
    #[derive(Deserialize)]
    struct Found {
        tokens: usize,
        nats: f64,
    }
    let libraries = install(place)?;
    let model = model(place, &libraries, weights)?;
    let bytes = fs::metadata(&model)?.len();
    let workload = place.folder.join("perplexity.json");
    fs::write(&workload, json!({"ids": ids, "window": window}).to_string())?;
    let mut words = place.script(SCRIPT)?;
    words.extend(["perplexity".into(), libraries.into(), model.into(), workload.into()]);
    let said = read(&mut place.command(&words)?)?;
    let line = said.lines().last().unwrap_or_default();
    let Found { tokens, nats } =
        serde_json::from_str(line).with_context(|| format!("read what llama.cpp scored from `{line}`"))?;
    ensure!(tokens > 0 && nats.is_finite(), "llama.cpp scored {tokens} tokens with {nats} nats");
    Ok(Score { bytes, tokens, nats })
}

/// The libraries, with a build for each kind of processor from which it chooses itself.
fn install(place: &Place<'_>) -> Result<PathBuf> {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "linux-x64",
        ("linux", "aarch64") => "linux-arm64",
        (system, processor) => anyhow::bail!("there is no package for {system} on {processor}"),
    };
    let folder = place.folder.join("llama.cpp");
    let libraries = folder.join("node_modules/@node-llama-cpp").join(platform).join("bins").join(platform);
    if libraries.is_dir() {
        return Ok(libraries);
    }
    ensure!(works(place.project.command("npm").arg("--version")), "there is no npm");
    fs::create_dir_all(&folder)?;
    let mut npm = place.project.command("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--prefix"]).arg(&folder);
    read(npm.arg(format!("@node-llama-cpp/{platform}@{VERSION}")))?;
    ensure!(libraries.is_dir(), "npm installed no {}", libraries.display());
    Ok(libraries)
}

/// A GGUF with every matrix of one type: F16 from the fetched model, the others from that.
fn model(place: &Place<'_>, libraries: &Path, weights: &'static str) -> Result<PathBuf> {
    let target = place.models("llama.cpp")?.join(format!("{weights}.gguf"));
    if !target.exists() {
        let source = match weights {
            "F16" => place.gguf.clone(),
            _ => model(place, libraries, "F16")?,
        };
        println!("making {weights}.gguf with llama.cpp");
        let mut words = place.script(SCRIPT)?;
        words.extend(["convert".into(), libraries.into(), source.into()]);
        words.extend([target.clone().into(), weights.into()]);
        read(&mut place.command(&words)?)?;
    }
    Ok(target)
}

/// The same models for another engine.
pub(super) fn gguf(place: &Place<'_>, weights: &'static str) -> Result<PathBuf> {
    model(place, &install(place)?, weights)
}
