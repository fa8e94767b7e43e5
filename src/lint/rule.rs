//! What a rule is: an id, what it says and why, and the check.

use serde::Serialize;

use super::finding::Sink;
use super::{Part, Platform, Setting, Subject};
use crate::view::Graph;

/// How bad it is to break a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Likely to cost speed, memory or accuracy.
    Warning,
    /// Keeps the model or a part of it off the Neural Engine, or breaks it.
    Error,
}

impl Severity {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// How well a rule is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Apple says so.
    Documented,
    /// Several independent projects report it.
    WidelyReported,
    /// One project reports it.
    SingleReport,
    /// A policy of this project, not a fact about a device.
    Policy,
}

impl Confidence {
    /// The words for it.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Documented => "documented",
            Confidence::WidelyReported => "widely reported",
            Confidence::SingleReport => "single report",
            Confidence::Policy => "policy",
        }
    }
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Its id, such as `A12`.
    pub id: &'static str,
    /// What is wrong, in one line.
    pub title: &'static str,
    /// How bad it is, unless a finding says otherwise.
    pub severity: Severity,
    /// How well it is supported.
    pub confidence: Confidence,
    /// Why it matters.
    pub why: &'static str,
    /// Who says so, one source each.
    pub evidence: &'static [&'static str],
    /// What to do about it.
    pub remedy: &'static str,
    /// Whether what it finds is predicted to stay off the Neural Engine.
    pub off: bool,
    pub(super) needs: Needs,
    pub(super) check: Check,
    /// A smallest subject that breaks the rule, and one that keeps it.
    #[cfg(test)]
    pub(super) examples: (super::testing::Example, super::testing::Example),
}

impl Rule {
    /// What the rule needs beside a package, if anything.
    pub fn needs(&self) -> Option<&'static str> {
        match self.needs {
            Needs::Package => None,
            needs => Some(needs.text()),
        }
    }
}

/// What a rule needs beside a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Package,
    Ios,
    TrainingShapes,
    ComputeUnits,
    Activations,
}

impl Needs {
    fn text(self) -> &'static str {
        match self {
            Needs::Package => "a package",
            Needs::Ios => "an iOS target (--target ios18 or ios26)",
            Needs::TrainingShapes => {
                "the sequence lengths of the training (--training-shapes, or `settings.training_shapes` in export.json)"
            }
            Needs::ComputeUnits => {
                "the compute units of the run (--compute-units, `settings.compute_units` in export.json, or metadata)"
            }
            Needs::Activations => "activation ranges of a calibration (--activations)",
        }
    }

    /// What is missing, if something is.
    pub(super) fn missing(self, subject: &Subject, setting: &Setting) -> Option<&'static str> {
        let is_there = match self {
            Needs::Package => true,
            Needs::Ios => setting.target.platform() == Platform::Ios,
            Needs::TrainingShapes => setting.training_shapes.is_some(),
            Needs::ComputeUnits => {
                setting.compute_units.is_some()
                    || subject.packages.iter().any(|p| p.compute_units().is_some())
            }
            Needs::Activations => setting.activations.is_some(),
        };
        (!is_there).then_some(self.text())
    }
}

pub(super) type GraphCheck = fn(&Graph<'_>, &Setting, &mut Sink<'_>);

/// How a rule is checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Check {
    /// Function by function, at each of its shapes.
    Shape(GraphCheck),
    /// Function by function, at its default shape.
    Function(GraphCheck),
    /// Package by package.
    Package(fn(&Part, &Setting, &mut Sink<'_>)),
    /// Once.
    Subject(fn(&Subject, &Setting, &mut Sink<'_>)),
}
