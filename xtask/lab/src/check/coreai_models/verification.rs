//! What `anemeter verify` finds of a bundle.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::program::Anemeter;
use super::text;
use anemeter::stats;

/// What is verified.
pub(super) struct Asked<'a> {
    pub(super) bundle: &'a Path,
    pub(super) checkpoint: &'a Path,
    pub(super) runtime: &'a str,
    pub(super) length: usize,
    pub(super) effort: &'a Effort,
}

/// How much is compared.
pub(super) struct Effort {
    /// Tokens after each prompt.
    pub(super) tokens: usize,
    /// Prompts, one per line; without them those of the program.
    pub(super) prompts: Option<PathBuf>,
}

/// What came of it: over prompts, forms of the cache, and prefill and decode.
pub(super) struct Verified {
    pub(super) cosine_min: f64,
    pub(super) positions: usize,
    /// Greedy tokens that are not the checkpoint's.
    pub(super) other_tokens: usize,
    /// The largest distance of the two likeliest logits where the token is another.
    gap: f64,
    max_abs: f64,
    forms: Vec<String>,
    prompts: usize,
    remarks: Vec<String>,
}

#[derive(Deserialize)]
struct Document {
    prompts: usize,
    cells: Vec<Cell>,
    differences: Vec<Difference>,
    #[serde(default)]
    remarks: Vec<String>,
    #[serde(default)]
    not_judged: Option<String>,
}

#[derive(Deserialize)]
struct Cell {
    kv: String,
    positions: usize,
    cosine_min: Option<f64>,
    max_abs: f64,
}

#[derive(Deserialize)]
struct Difference {
    gap: f64,
}

/// Verifies every form of a bundle. The checkpoint continues each prompt greedily, and the bundle gets the same tokens: where
/// its likeliest token is the same everywhere, it would have generated them itself.
pub(super) fn verify(anemeter: &Anemeter, asked: &Asked<'_>) -> Result<Verified> {
    let (bundle, checkpoint, length) = (text(asked.bundle), text(asked.checkpoint), asked.length.to_string());
    let Effort { tokens, prompts } = asked.effort;
    let (tokens, prompts) = (tokens.to_string(), prompts.as_deref().map(text));
    let mut arguments = vec!["verify", &bundle, "--checkpoint", &checkpoint, "--runtime", asked.runtime];
    arguments.extend(["--shapes", &length, "--kv", "io,state", "--tokens", &tokens, "--no-record", "--json"]);
    arguments.extend(prompts.iter().flat_map(|prompts| ["--prompts", prompts]));
    // What counts as right is judged here.
    let ran = anemeter.run(&arguments)?;
    ensure!(matches!(ran.code, 0 | 1), "anemeter {}:\n{}{}", arguments.join(" "), ran.stdout, ran.stderr);
    let found: Document = serde_json::from_str(&ran.stdout).context("`verify --json`")?;
    ensure!(found.not_judged.is_none(), "not judged: {}", found.not_judged.unwrap_or_default());
    let cosines = found.cells.iter().map(|cell| cell.cosine_min.unwrap_or(f64::NAN));
    let mut forms: Vec<String> = found.cells.iter().map(|cell| cell.kv.clone()).collect();
    forms.dedup();
    Ok(Verified {
        cosine_min: stats::least(cosines).context("`verify --json` has no cells")?,
        positions: found.cells.iter().map(|cell| cell.positions).sum(),
        other_tokens: found.differences.len(),
        gap: found.differences.iter().map(|difference| difference.gap).fold(0.0, f64::max),
        max_abs: found.cells.iter().map(|cell| cell.max_abs).fold(0.0, f64::max),
        forms,
        prompts: found.prompts,
        remarks: found.remarks,
    })
}

impl Verified {
    /// Whether it is right; in fp32 every token must be the checkpoint's.
    pub(super) fn judge(&self, least: f64, same_tokens: bool) -> Result<()> {
        ensure!(self.forms == ["io", "state"], "the forms are {}", self.forms.join(", "));
        ensure!(self.positions > 0, "nothing was compared");
        ensure!(self.cosine_min >= least, "the least cosine is {:.7}, {least:.6} is wanted", self.cosine_min);
        ensure!(
            !same_tokens || self.other_tokens == 0,
            "{} greedy tokens are not the checkpoint's",
            self.other_tokens
        );
        // A token may be another only where the logits are nearer to each other than the error.
        ensure!(
            self.gap <= 2.0 * self.max_abs,
            "a token is another that the checkpoint prefers by {}",
            self.gap
        );
        Ok(())
    }

    /// What it says of itself.
    pub(super) fn remarks(&self) -> &[String] {
        &self.remarks
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verified { cosine_min, positions, other_tokens, max_abs, forms, prompts, .. } = self;
        write!(
            f,
            "{prompts} prompts in {}, {positions} positions, least cosine {cosine_min:.8}, largest difference of a logit \
             {max_abs:.5}, {other_tokens} greedy tokens that are not the checkpoint's",
            forms.join(" and ")
        )
    }
}
