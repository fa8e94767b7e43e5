//! What a lint came to, as one document.

use anemeter_base::vocabulary::Choice;
use std::collections::BTreeSet;

use serde::Serialize;

use super::collapse::collapse;
use super::rule::Rule;
use super::{Confidence, Diagnostics, Finding, Place, Placement, Setting, Severity, Subject, Waiver};
use crate::graph::generic;

/// What a lint came to.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The form of the document.
    pub schema: &'static str,
    /// What was looked at.
    pub subject: String,
    /// The system it is meant for.
    pub target: &'static str,
    /// The chip it is meant for, if one was named.
    pub device: Option<&'static str>,
    /// How many findings there are.
    pub counts: Counts,
    /// Findings, errors first.
    pub findings: Vec<FindingGroup>,
    /// Findings that waivers accept.
    pub waived: Vec<Waived>,
    /// Waivers that accept nothing.
    pub unused_waivers: Vec<Waiver>,
    /// Rules that were not checked, and what they need.
    pub not_checked: Vec<NotChecked>,
    /// Where operations are predicted to run, function by function.
    pub placements: Vec<Placement>,
    /// Whether there is one package only.
    #[serde(skip)]
    pub is_single: bool,
}

/// Findings by severity; the same finding in several layers counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Errors.
    pub errors: usize,
    /// Warnings.
    pub warnings: usize,
    /// Remarks.
    pub infos: usize,
    /// Findings that a waiver accepts.
    pub waived: usize,
}

/// Operations and tensors, and shapes, that a finding was made at.
#[derive(Debug, Clone, Default)]
struct Occurrences {
    places: BTreeSet<(Option<usize>, Option<String>)>,
    shapes: BTreeSet<usize>,
}

/// A finding, with all layers it was found in.
#[derive(Debug, Clone, Serialize)]
pub struct FindingGroup {
    /// The rule's id.
    pub rule: &'static str,
    /// The rule's title.
    pub title: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// How well the rule is supported.
    pub confidence: Confidence,
    /// What was found at the first place.
    pub message: String,
    /// Where it was found first.
    pub place: Place,
    /// Layers it was found in, ascending.
    pub layers: Vec<u32>,
    /// How many operations or tensors it was found at.
    pub places: usize,
    /// At how many of the function's shapes.
    pub shapes: usize,
    #[serde(skip)]
    seen: Occurrences,
}

impl FindingGroup {
    pub(super) fn new(finding: &Finding) -> FindingGroup {
        FindingGroup {
            rule: finding.rule.id,
            title: finding.rule.title,
            severity: finding.severity,
            confidence: finding.rule.confidence,
            message: finding.message.clone(),
            place: finding.place.clone(),
            layers: Vec::new(),
            places: 0,
            shapes: 0,
            seen: Occurrences::default(),
        }
    }

    pub(super) fn add(&mut self, finding: &Finding) {
        let place = &finding.place;
        self.layers.extend(place.layer);
        self.seen.places.insert((place.operation.as_ref().map(|op| op.index), place.tensor.clone()));
        self.seen.shapes.insert(finding.shape_index);
    }

    /// Counts what was added.
    pub(super) fn count(&mut self) {
        self.layers.sort_unstable();
        self.layers.dedup();
        (self.places, self.shapes) = (self.seen.places.len(), self.seen.shapes.len());
        self.seen = Occurrences::default();
    }

    /// The place within its package, for people: function, operation, tensor, dimension, layers.
    fn within_package(&self) -> String {
        let mut parts = Vec::new();
        let general = |name: &str| if self.layers.len() > 1 { generic(name) } else { name.to_owned() };
        if let Some(op) = &self.place.operation {
            parts.push(format!("`{}` = {}", general(&op.name), op.kind));
        }
        let named = self.place.operation.as_ref().map(|op| &op.name);
        if let Some(tensor) = self.place.tensor.as_ref().filter(|tensor| Some(*tensor) != named) {
            parts.push(format!("tensor `{}`", general(tensor)));
        }
        parts.extend(self.place.dimension.map(|n| format!("dimension {n}")));
        parts.extend(match &self.layers[..] {
            [] => None,
            [only] => Some(format!("layer {only}")),
            more => Some(format!("layers {}", ranges(more))),
        });
        match &self.place.function {
            Some(function) if parts.is_empty() => function.clone(),
            Some(function) => format!("{function}: {}", parts.join(", ")),
            None => parts.join(", "),
        }
    }
}

/// Ascending numbers as ranges.
fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &n in numbers {
        match runs.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(n) => *end = n,
            _ => runs.push((n, n)),
        }
    }
    let run = |&(start, end): &(u32, u32)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}

/// A finding that a waiver accepts.
#[derive(Debug, Clone, Serialize)]
pub struct Waived {
    /// The finding.
    #[serde(flatten)]
    pub finding: FindingGroup,
    /// Why it is accepted.
    pub reason: String,
}

/// A rule that was not checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotChecked {
    /// The rule's id.
    pub rule: &'static str,
    /// The rule's title.
    pub title: &'static str,
    /// The function it was not checked for, if it was for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What it would need to know.
    pub needs: &'static str,
}

impl NotChecked {
    pub(super) fn new(rule: &Rule, place: Option<String>, needs: &'static str) -> NotChecked {
        NotChecked { rule: rule.id, title: rule.title, place, needs }
    }
}

impl Report {
    /// Where a finding is, for people; the package is named where there are several.
    pub fn location(&self, finding: &FindingGroup) -> String {
        let (package, within) = (&finding.place.package, finding.within_package());
        match (package.is_empty(), within.is_empty()) {
            (true, true) => self.subject.clone(),
            (false, true) => package.clone(),
            (false, false) if !self.is_single => format!("{package}/{within}"),
            _ => within,
        }
    }

    pub(super) fn new(
        subject: &Subject,
        setting: &Setting,
        waivers: &[Waiver],
        diagnostics: Diagnostics,
        placements: Vec<Placement>,
    ) -> Report {
        let report =
            Report::of_findings(subject.path.clone(), setting.target.name(), waivers, diagnostics.findings);
        Report {
            device: setting.device.map(super::Device::name),
            not_checked: diagnostics.not_checked,
            placements,
            is_single: subject.packages.len() == 1,
            ..report
        }
    }

    /// A report of one model that consists of findings, of whatever rules.
    pub fn of_findings(
        subject: String,
        target: &'static str,
        waivers: &[Waiver],
        found: Vec<Finding>,
    ) -> Report {
        let covering = |finding: &Finding| waivers.iter().position(|waiver| waiver.covers(finding));
        let mut open = Vec::new();
        let mut accepted: Vec<Vec<Finding>> = vec![Vec::new(); waivers.len()];
        for finding in found {
            match covering(&finding) {
                Some(waiver) => accepted[waiver].push(finding),
                None => open.push(finding),
            }
        }
        let findings = collapse(&open);
        let unused = waivers.iter().zip(&accepted).filter(|(_, findings)| findings.is_empty());
        let unused_waivers = unused.map(|(waiver, _)| waiver.clone()).collect();
        let waived = waivers.iter().zip(&accepted).flat_map(|(waiver, findings)| {
            let waived = |finding| Waived { finding, reason: waiver.reason.clone() };
            collapse(findings).into_iter().map(waived)
        });
        let waived: Vec<Waived> = waived.collect();
        let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
        Report {
            schema: "anemeter-lint-1",
            subject,
            target,
            device: None,
            counts: Counts {
                errors: count(Severity::Error),
                warnings: count(Severity::Warning),
                infos: count(Severity::Info),
                waived: waived.len(),
            },
            findings,
            waived,
            unused_waivers,
            not_checked: Vec::new(),
            placements: Vec::new(),
            is_single: true,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn layers_are_shown_as_ranges() {
        assert_eq!(super::ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    }
}
