//! Two reports side by side: what got slower, beside what changed.

use crate::compare::Comparison;
use crate::evaluate::{Baseline, GateRules};
use crate::gate::{GateError, InterimLook};
use crate::report::Report;

/// Sets two reports side by side. Reports that were not measured alike have differences in place of a verdict.
pub fn compare(baseline: &Report, candidate: &Report, rules: &GateRules) -> Result<Comparison, GateError> {
    let sessions = std::slice::from_ref(baseline);
    let verdict = match rules.judge(candidate, Baseline::Sessions(sessions), InterimLook::only()) {
        Err(GateError::NotComparable(differences)) => Err(differences),
        judged => Ok(judged?),
    };
    Ok(Comparison::of(baseline, candidate, verdict))
}
