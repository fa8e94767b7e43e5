//! What a rule is: an id, what it says and why, and the check.

use serde::Serialize;

use super::finding::Sink;
use super::{LintedPackage, Platform, Setting, Subject};
use crate::graph::Graph;

/// How bad it is to break a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing, changes nothing.
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
    /// In Apple's documentation or code.
    Documented,
    /// Apple's own code did it when this project executed it, on Linux and not on a device.
    Executed,
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
            Confidence::Executed => "executed",
            Confidence::WidelyReported => "widely reported",
            Confidence::SingleReport => "single report",
            Confidence::Policy => "policy",
        }
    }
}

/// What is said of a rule, whatever it is checked on.
#[derive(Debug, Clone, Copy)]
pub struct RuleText {
    /// Its id, such as `A29`.
    pub id: &'static str,
    /// The same in words, such as `fused-attention`.
    pub slug: &'static str,
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
    pub off_ane: bool,
}

impl RuleText {
    /// Whether a configuration or an option means this rule: by its id or its slug, whatever the case.
    pub fn is_named(&self, name: &str) -> bool {
        self.id.eq_ignore_ascii_case(name) || self.slug.eq_ignore_ascii_case(name)
    }
}

/// One rule of the linter.
#[derive(Debug)]
pub struct Rule {
    /// Its id, such as `A29`, which configurations and reports name it by.
    pub id: &'static str,
    /// The same in words, such as `fused-attention`.
    pub slug: &'static str,
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
    pub off_ane: bool,
    /// The key of an export configuration that what it finds depends on, if there is one.
    pub decided_by: Option<&'static str>,
    /// Whether it is about models that generate text, and says nothing of others.
    pub of_decoders: bool,
    pub(super) needs: Needs,
    pub(super) check: Check,
    /// A smallest subject that breaks the rule, and one that keeps it.
    #[cfg(test)]
    pub(super) examples: (super::testing::Example, super::testing::Example),
}

/// A rule is written as its text and its check over one of these: `..Rule::error("A21", "scatter", WidelyReported)`.
impl Rule {
    pub(super) const fn error(id: &'static str, slug: &'static str, confidence: Confidence) -> Rule {
        Rule {
            id,
            slug,
            title: "",
            severity: Severity::Error,
            confidence,
            why: "",
            evidence: &[],
            remedy: "",
            off_ane: false,
            decided_by: None,
            of_decoders: false,
            needs: Needs::Package,
            check: Check::Subject(|_, _, _| {}),
            #[cfg(test)]
            examples: (super::testing::plain, super::testing::plain),
        }
    }

    pub(super) const fn warning(id: &'static str, slug: &'static str, confidence: Confidence) -> Rule {
        Rule { severity: Severity::Warning, ..Rule::error(id, slug, confidence) }
    }

    pub(super) const fn info(id: &'static str, slug: &'static str, confidence: Confidence) -> Rule {
        Rule { severity: Severity::Info, ..Rule::error(id, slug, confidence) }
    }

    /// What it finds is predicted to stay off the Neural Engine.
    pub(super) const fn off_ane(self) -> Rule {
        Rule { off_ane: true, ..self }
    }

    /// A key of an export configuration decides whether something is found.
    pub(super) const fn decided_by(self, key: &'static str) -> Rule {
        Rule { decided_by: Some(key), ..self }
    }

    /// It is about models that generate text, and says nothing of others.
    pub(super) const fn of_decoders(self) -> Rule {
        Rule { of_decoders: true, ..self }
    }

    pub(super) const fn needing(self, needs: Needs) -> Rule {
        Rule { needs, ..self }
    }

    /// What is said of it.
    pub fn text(&self) -> RuleText {
        let Rule { id, slug, title, severity, confidence, why, evidence, remedy, off_ane, .. } = *self;
        RuleText { id, slug, title, severity, confidence, why, evidence, remedy, off_ane }
    }

    /// Whether a configuration or an option means this rule: by its id or its slug, whatever the case.
    pub fn is_named(&self, name: &str) -> bool {
        self.text().is_named(name)
    }

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
    TrainingSeqLens,
    ComputeUnits,
    Activations,
}

impl Needs {
    fn text(self) -> &'static str {
        match self {
            Needs::Package => "a package",
            Needs::Ios => "an iOS target (ios18 or ios26)",
            Needs::TrainingSeqLens => {
                "the sequence lengths of the training (`settings.training_seq_lens` in export.json)"
            }
            Needs::ComputeUnits => {
                "the compute units of the run (`settings.compute_units` in export.json, or metadata)"
            }
            Needs::Activations => "activation ranges of a calibration",
        }
    }

    /// What is missing, if something is.
    pub(super) fn missing(self, subject: &Subject, setting: &Setting) -> Option<&'static str> {
        let is_there = match self {
            Needs::Package => true,
            Needs::Ios => setting.target.platform() == Platform::Ios,
            Needs::TrainingSeqLens => setting.training_seq_lens.is_some(),
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
    /// Every operation of these types, at each shape, with this message.
    OpTypes(&'static [&'static str], &'static str),
    /// Function by function, at its default shape.
    Function(GraphCheck),
    /// Package by package.
    Package(fn(&LintedPackage, &Setting, &mut Sink<'_>)),
    /// Once for all packages together.
    Subject(fn(&Subject, &Setting, &mut Sink<'_>)),
}
