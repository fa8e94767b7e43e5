//! Static rules for Core AI assets: what keeps one off the Neural Engine, breaks it there, or breaks Apple's tools.
//!
//! Each rule is one [`Rule`] in [`rules()`], with the evidence for it, as the rules for Core ML packages are. No rule here was
//! tried on a device by this project: the evidence says who did.

mod graph;
mod rules;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use anemeter_mil::lint::{Confidence, Finding, OperationPlace, Place, RuleText, Severity};

use crate::Program;
use graph::{GraphView, OpView};

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// What is said of it.
    pub text: RuleText,
    check: Check,
    /// A smallest program that breaks the rule, and one that keeps it.
    #[cfg(test)]
    examples: (testing::Example, testing::Example),
}

/// How a rule is checked.
#[derive(Debug, Clone, Copy)]
enum Check {
    /// Graph by graph.
    Graph(fn(&GraphView<'_>, &mut Sink<'_>)),
    /// Once for the program.
    Program(fn(&Program, &mut Sink<'_>)),
}

/// Every rule, in the order of their ids.
pub fn rules() -> &'static [&'static Rule] {
    rules::RULES
}

/// The rule of an id or a slug, whatever its case.
pub fn rule(name: &str) -> Option<&'static Rule> {
    rules().iter().copied().find(|rule| rule.text.is_named(name))
}

/// Holds every rule against a consistent program of an asset of this name.
pub fn lint(asset: &str, program: &Program) -> Vec<Finding> {
    let mut findings = Vec::new();
    let graphs: Vec<_> = program.graphs.iter().map(GraphView::new).collect();
    for rule in rules() {
        let mut sink = Sink { rule, asset, findings: &mut findings };
        match rule.check {
            Check::Graph(check) => graphs.iter().for_each(|graph| check(graph, &mut sink)),
            Check::Program(check) => check(program, &mut sink),
        }
    }
    findings
}

/// Where a rule puts what it finds.
struct Sink<'a> {
    rule: &'static Rule,
    asset: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Sink<'_> {
    /// A finding at an operation.
    fn op(&mut self, graph: &GraphView<'_>, op: &OpView<'_>, message: impl Into<String>) {
        let name = op.op.results.first().map_or_else(|| op.op.name.to_string(), |_| format!("%{}", op.first));
        let operation = OperationPlace { index: op.index, name, kind: op.op.name.to_string() };
        let place = Place { operation: Some(operation), ..self.place(graph) };
        self.push(place, message.into());
    }

    /// A finding at an argument or a result of a graph.
    fn port(&mut self, graph: &GraphView<'_>, name: &str, message: impl Into<String>) {
        let place = Place { tensor: Some(name.to_owned()), ..self.place(graph) };
        self.push(place, message.into());
    }

    /// A finding at the program as a whole.
    fn program(&mut self, message: impl Into<String>) {
        self.push(Place { package: self.asset.to_owned(), ..Place::default() }, message.into());
    }

    fn place(&self, graph: &GraphView<'_>) -> Place {
        let function = Some(graph.graph.name.clone());
        Place { package: self.asset.to_owned(), function, ..Place::default() }
    }

    fn push(&mut self, place: Place, message: String) {
        let (rule, severity) = (self.rule.text, self.rule.text.severity);
        self.findings.push(Finding { rule, severity, message, place, shape_index: 0 });
    }
}
