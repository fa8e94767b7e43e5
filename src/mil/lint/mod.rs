//! Static rules: what keeps a package off the Neural Engine, slows it there, or breaks it.
//!
//! [`lint`] looks at a [`Subject`] under a [`Setting`] and gives a [`Report`]. Each rule is one [`Rule`] in
//! [`rules()`], with the evidence for it; `docs/reference/rules.md` is made from that table. Rules that a package alone cannot
//! answer say what they need instead of passing.

mod collapse;
mod config;
mod decoder;
mod export_config;
mod finding;
mod placement;
mod report;
mod rule;
mod rules;
pub mod sarif;
mod subject;
mod target;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use config::{Config, Waiver};
pub use export_config::ExportConfig;
pub use finding::{Finding, OperationPlace, Place};
pub use placement::{IslandOperation, Placement, PredictedIsland};
pub use report::{Counts, FindingGroup, NotChecked, Report, Waived};
pub use rule::{Confidence, Rule, RuleText, Severity};
pub use subject::{ActivationRange, LintError, LintedPackage, OtherStage, Subject};
pub use target::{Device, Platform, Setting, Target};

use finding::Sink;
use rule::Check;

use crate::graph;
use crate::verify;

/// Every rule, in the order of their ids.
pub fn rules() -> &'static [&'static Rule] {
    rules::RULES
}

/// The rule of an id or a slug, whatever its case.
pub fn rule(name: &str) -> Option<&'static Rule> {
    rules().iter().copied().find(|rule| rule.is_named(name))
}

/// Holds every rule against a subject.
pub fn lint(subject: &Subject, setting: &Setting, waivers: &[Waiver]) -> Result<Report, LintError> {
    for package in &subject.packages {
        if let Some(fault) = verify::structure(&package.model).into_iter().next() {
            return Err(LintError::Program { package: package.name.clone(), fault: fault.to_string() });
        }
    }
    let mut diagnostics = Diagnostics::default();
    let mut applicable = Vec::new();
    let is_decoder = subject.is_decoder();
    for rule in rules().iter().filter(|rule| is_decoder || !rule.of_decoders) {
        match rule.needs.missing(subject, setting) {
            Some(needs) => diagnostics.not_checked.push(NotChecked::new(rule, None, needs)),
            None => applicable.push(*rule),
        }
    }
    for rule in &applicable {
        if let Check::Subject(check) = rule.check {
            check(subject, setting, &mut Sink::new(rule, "", &mut diagnostics));
        }
    }
    let mut placements = Vec::new();
    for package in &subject.packages {
        for rule in &applicable {
            if let Check::Package(check) = rule.check {
                check(package, setting, &mut Sink::new(rule, &package.name, &mut diagnostics));
            }
        }
        for graph in graph::graphs(&package.model) {
            for rule in &applicable {
                let mut sink = Sink::new(rule, &package.name, &mut diagnostics);
                match rule.check {
                    Check::Shape(check) => check(&graph, setting, &mut sink),
                    Check::Function(check) if graph.shape_index == 0 => check(&graph, setting, &mut sink),
                    Check::OpTypes(types, message) => sink.op_types(&graph, types, message),
                    Check::Function(_) | Check::Package(_) | Check::Subject(_) => {}
                }
            }
            placements.push(placement::predict(&package.name, &graph, &diagnostics.findings));
        }
    }
    Ok(Report::new(subject, setting, waivers, diagnostics, placements))
}

/// What the rules have said so far.
#[derive(Default)]
struct Diagnostics {
    findings: Vec<Finding>,
    not_checked: Vec<NotChecked>,
}
