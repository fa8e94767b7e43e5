//! What a verification found, as data.

use std::fmt;

use serde::Serialize;

use super::metrics::Summary;
use super::stored::Misstored;
use super::thresholds::Thresholds;
use super::trace::{Layers, TensorDivergence};
use anemeter_base::vocabulary::KvForm;
use anemeter_measure::report::QualityLoss;

/// Format and version of the JSON document.
pub const SCHEMA: &str = "anemeter.verify/1";

/// What a verification found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Format and version: `anemeter.verify/1`.
    pub schema: &'static str,
    /// What computed the reference.
    pub reference: String,
    /// Prompts given.
    pub prompts: usize,
    /// Tokens that the reference added to each, at most.
    pub tokens: usize,
    /// Logits against the reference's, by form, length and phase.
    pub cells: Vec<Cell>,
    /// The same tokens at two lengths.
    pub drift: Vec<Drift>,
    /// Greedy tokens that differ from the reference's.
    pub differences: Vec<Difference>,
    /// Hidden states and ranges of each form, if they were looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Layers>,
    /// Tensors against those of the same name in the other bundle, if the reference is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<TensorDivergence>,
    /// What is not as `export.json` says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// What counts as right.
    pub thresholds: Thresholds,
    /// Everything that is not.
    pub failures: Vec<Failure>,
    /// Why only quality was judged, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<String>,
    /// What is lost against the checkpoint, and what may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<QualityLoss>,
    /// Whether nothing failed: it is right, and good enough.
    pub passed: bool,
}

impl Report {
    /// The report with what is lost against the checkpoint.
    pub fn with_quality(self, quality: Option<QualityLoss>) -> Report {
        let good = quality.as_ref().is_none_or(QualityLoss::is_good);
        Report { passed: self.is_right() && good, quality, ..self }
    }

    /// Whether the packages compute what their weights say, as far as that was judged.
    pub fn is_right(&self) -> bool {
        self.failures.is_empty()
    }

    /// The report with weights that are not stored as their compression left them.
    pub fn with_misstored(mut self, misstored: &[Misstored]) -> Report {
        let failure = |weight: &Misstored| Failure {
            at: format!("weight {}", weight.name),
            metric: "weight_cosine",
            found: Some(weight.found),
            limit: weight.logged,
        };
        self.failures.extend(misstored.iter().map(failure));
        self.passed = self.is_right();
        self
    }
}

/// Where logits come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// After the prompt.
    Prefill,
    /// After a single token.
    Decode,
}

/// Logits of a form, length and phase against the reference's.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The cache form.
    pub kv: KvForm,
    /// The length.
    pub seq_len: usize,
    /// The phase.
    pub phase: Phase,
    /// All of its positions.
    #[serde(flatten)]
    pub summary: Summary,
}

/// The same tokens at two lengths of a form.
#[derive(Debug, Clone, Serialize)]
pub struct Drift {
    /// The cache form.
    pub kv: KvForm,
    /// The length.
    pub seq_len: usize,
    /// The length it is compared with.
    pub against: usize,
    /// All positions.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A greedy token that differs from the reference's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The cache form.
    pub kv: KvForm,
    /// The length.
    pub seq_len: usize,
    /// The phase.
    pub phase: Phase,
    /// Which prompt, from 0.
    pub prompt: usize,
    /// Position of the token in its sequence, from 0.
    pub position: usize,
    /// The reference's choice.
    pub expected: u32,
    /// The package's choice.
    pub found: u32,
    /// By how much the reference prefers its choice, as a difference of logits.
    pub gap: f64,
    /// The largest gap that rounding may turn: twice the largest error of a logit where choices agree.
    pub tolerance: f64,
    /// Whether the gap is within it.
    pub tie: bool,
}

/// Something that is not good enough.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// Where, such as `io 512 decode`.
    pub at: String,
    /// What, such as `cosine`.
    pub metric: &'static str,
    /// What was found; absent if it could not be computed.
    pub found: Option<f64>,
    /// What was asked for.
    pub limit: f64,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        })
    }
}
