//! What every engine is given: token ids of a short and a long prompt, and how much to decode.

use std::fs;
use std::path::PathBuf;

use anemeter::generate::Tokenizer;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::engine::Place;

/// Tokens of the long prompt.
pub(super) const LONG: usize = 512;
/// Lengths that our exports have: one for short prompts, one for the long.
pub(super) const SEQ_LENS: &[usize] = &[32, LONG];
/// Tokens that are decoded after the first.
pub(super) const DECODED: usize = 128;
/// Tokens that are decoded at each length when cost against length is measured.
pub(super) const STEPS: usize = 16;
/// Those lengths.
pub(super) const LENGTHS: &[usize] = &[128, 256, 512, 1024, 2048];

const PROMPT: &str = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is";
/// A document of the project, long enough for every length.
const TEXT: &str = "docs/architecture.md";

/// The file that engines read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Workload {
    pub(super) prompt: Vec<u32>,
    pub(super) long: Vec<u32>,
    pub(super) decode: usize,
    /// Lengths to measure at, instead of the usual.
    pub(super) lengths: Vec<usize>,
}

/// Load, decode after a short prompt, prefill of a long one.
pub(super) fn usual(place: &Place<'_>) -> Result<PathBuf> {
    write(place, "usual", LONG, &[])
}

/// Decode and prefill at growing lengths.
pub(super) fn growing(place: &Place<'_>) -> Result<PathBuf> {
    let longest = LENGTHS.iter().copied().max().unwrap_or(LONG);
    write(place, "growing", longest, LENGTHS)
}

fn write(place: &Place<'_>, name: &str, long: usize, lengths: &[usize]) -> Result<PathBuf> {
    let tokenizer = Tokenizer::open(&place.checkpoint.join("tokenizer.json"))?;
    let text = fs::read_to_string(place.project.root.join(TEXT)).with_context(|| format!("read {TEXT}"))?;
    let ids = tokenizer.encode(&text, false)?;
    let too_short = || format!("{TEXT} has {} tokens, fewer than {long}", ids.len());
    let workload = Workload {
        prompt: tokenizer.encode(PROMPT, false)?,
        long: ids.get(..long).with_context(too_short)?.to_vec(),
        decode: DECODED,
        lengths: lengths.to_vec(),
    };
    let path = place.folder.join(format!("{name}.json"));
    fs::write(&path, serde_json::to_string(&workload)?)?;
    Ok(path)
}
