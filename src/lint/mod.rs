//! Static rules: what keeps a package off the Neural Engine, slows it there, or breaks it.
//!
//! [`lint`] looks at a [`Subject`] under a [`Setting`] and gives a [`Report`]. Each rule is one [`Rule`] in
//! [`rules()`], with the evidence for it; `docs/reference/rules.md` is made from that table. Rules that a package alone cannot
//! answer say what they need instead of passing.

mod collapse;
mod config;
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
pub use finding::{Finding, OperationPlace, Place};
pub use placement::{Island, Placement};
pub use report::{Counts, NotChecked, Report, Reported, Waived};
pub use rule::{Confidence, Rule, Severity};
pub use subject::{ActivationRange, LintError, Part, Subject};
pub use target::{Device, Platform, Setting, Target};

use finding::Sink;
use rule::Check;

use crate::mil::verify;
use crate::view::{self, Graph};

/// Every rule, in the order of their ids.
pub fn rules() -> &'static [&'static Rule] {
    rules::RULES
}

/// The rule of an id, whatever its case.
pub fn rule(id: &str) -> Option<&'static Rule> {
    rules().iter().copied().find(|rule| rule.id.eq_ignore_ascii_case(id))
}

/// Holds every rule against a subject.
pub fn lint(subject: &Subject, setting: &Setting, waivers: &[Waiver]) -> Result<Report, LintError> {
    for part in &subject.packages {
        if let Some(fault) = verify::structure(&part.model).into_iter().next() {
            return Err(LintError::Program { package: part.name.clone(), fault: fault.to_string() });
        }
    }
    let mut found = Found::default();
    let mut applicable = Vec::new();
    for rule in rules() {
        match rule.needs.missing(subject, setting) {
            Some(needs) => found.not_checked.push(NotChecked::new(rule, None, needs)),
            None => applicable.push(*rule),
        }
    }
    for rule in &applicable {
        if let Check::Subject(check) = rule.check {
            check(subject, setting, &mut Sink::new(rule, "", &mut found));
        }
    }
    let mut placements = Vec::new();
    for part in &subject.packages {
        for rule in &applicable {
            if let Check::Package(check) = rule.check {
                check(part, setting, &mut Sink::new(rule, &part.name, &mut found));
            }
        }
        for graph in view::graphs(&part.model) {
            found.graph(part, &graph, setting, &applicable);
            placements.push(placement::predict(&part.name, &graph, &found.findings));
        }
    }
    Ok(Report::new(subject, setting, waivers, found, placements))
}

/// What the rules have said so far.
#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    not_checked: Vec<NotChecked>,
}

impl Found {
    fn graph(&mut self, part: &Part, graph: &Graph<'_>, setting: &Setting, rules: &[&'static Rule]) {
        for rule in rules {
            let mut sink = Sink::new(rule, &part.name, self);
            match rule.check {
                Check::Shape(check) => check(graph, setting, &mut sink),
                Check::Function(check) if graph.shape == 0 => check(graph, setting, &mut sink),
                _ => {}
            }
        }
    }
}
