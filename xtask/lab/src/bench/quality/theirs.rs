//! llama.cpp's four bits on the same tokens, by models that its own quantiser made of the same checkpoint.

use std::path::Path;

use anyhow::Result;

use crate::bench::peers;
use xtask::project::Project;

/// The name of the row without compression.
pub(super) const F16: &str = "llama.cpp F16";

/// Kinds of weights, and what tables call them. Of a width that 256 does not divide, most matrices of Q4_K become wider.
const KINDS: &[(&str, &str)] = &[
    ("F16", F16),
    ("Q4_0", "llama.cpp Q4_0 for every weight"),
    ("Q4_0_mixed", "llama.cpp Q4_0"),
    ("Q4_K_S", "llama.cpp Q4_K_S"),
    ("Q4_K_M", "llama.cpp Q4_K_M"),
];

/// What a kind came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Theirs {
    pub(super) name: &'static str,
    /// The whole file.
    pub(super) bytes: u64,
    pub(super) tokens: usize,
    pub(super) perplexity: f64,
}

/// Scores tokens in the windows of `anemeter eval`.
pub(super) fn measure(
    project: &Project,
    model: &Path,
    (ids, window): (&[u32], usize),
) -> Result<Vec<Theirs>> {
    let kinds: Vec<&'static str> = KINDS.iter().map(|(kind, _)| *kind).collect();
    let scores = peers::llama_cpp_scores(project, model, (ids, window), &kinds)?;
    let row = |(score, &(_, name)): (&peers::Score, &(_, &'static str))| Theirs {
        name,
        bytes: score.bytes,
        tokens: score.tokens,
        perplexity: (score.nats / score.tokens as f64).exp(),
    };
    Ok(scores.iter().zip(KINDS).map(row).collect())
}
