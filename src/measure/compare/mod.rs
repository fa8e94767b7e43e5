//! Two reports side by side: what got slower, set beside what changed, ranked by likely cause. Pure.
//!
//! `KINDS` has one line per kind of change: how it acts, and on which metrics. A cause is likely if what it acts
//! on got slower, and the more so the more directly it acts; nothing here proves a cause.

mod kinds;
mod quality;
mod rank;
mod speed;

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::{Difference, Outcome, Verdict};
use crate::report::Report;
pub use quality::QualityPair;
pub use rank::{Cause, Change};
pub use speed::Speed;

/// Format and version of comparisons.
pub const SCHEMA: &str = "anemeter.compare/1";

/// Two reports side by side.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Format and version: `anemeter.compare/1`.
    #[schemars(extend("const" = "anemeter.compare/1"))]
    pub schema: &'static str,
    /// What was compared: `reports`.
    #[schemars(extend("const" = "reports"))]
    pub kind: &'static str,
    /// The verdict on the second report; absent if the two were not measured alike.
    pub verdict: Option<Verdict>,
    /// Why there is no verdict: what was not alike.
    pub not_comparable: Vec<String>,
    /// Medians, what got slower most first.
    pub speeds: Vec<Speed>,
    /// What the packages of each lose against their checkpoint, as far as it is known.
    pub quality: Vec<QualityPair>,
    /// What changed, the likeliest cause first.
    pub changes: Vec<Change>,
}

impl Comparison {
    /// Sets two reports side by side; `verdict` is the gate's on the second, or what keeps the gate from judging it.
    pub fn of(base: &Report, candidate: &Report, verdict: Result<Verdict, Vec<Difference>>) -> Comparison {
        let (verdict, differences) = match verdict {
            Ok(verdict) => (Some(verdict), Vec::new()),
            Err(differences) => (None, differences),
        };
        let speeds = speed::speeds(base, candidate, verdict.as_ref());
        let changes = rank::ranked(kinds::changes(base, candidate), &speeds);
        Comparison {
            schema: SCHEMA,
            kind: "reports",
            verdict,
            not_comparable: differences.iter().map(ToString::to_string).collect(),
            speeds,
            quality: quality::qualities(base, candidate),
            changes,
        }
    }

    /// The whole in a line.
    pub fn headline(&self) -> String {
        match self.verdict.as_ref().map(|verdict| verdict.outcome) {
            Some(Outcome::Pass) => "pass: B is not slower than A".to_owned(),
            Some(Outcome::Fail) => "FAIL: B is worse than A".to_owned(),
            Some(Outcome::Inconclusive) => "inconclusive: noise leaves open whether B is slower".to_owned(),
            None => "not judged: the two were not measured alike, so these are plain changes".to_owned(),
        }
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "it serves tests only")]
pub mod testing;
#[cfg(test)]
mod tests;
