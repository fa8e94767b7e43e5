//! Findings: which rule, what, and where.

use serde::Serialize;

use super::rule::{Rule, RuleText, Severity};
use super::{Diagnostics, NotChecked};
use crate::ValueId;
use crate::graph::{Graph, Op};

/// Where a finding is; each part is present as far as it applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The package.
    pub package: String,
    /// The function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationPlace>,
    /// The tensor: a value, a weight, an input, an output or a state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// The dimension of the tensor, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimension: Option<usize>,
    /// The layer of the model, as names tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<u32>,
}

/// An operation of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperationPlace {
    /// Its place among the operations of the function, nested ones included.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
}

impl Place {
    /// An operation and its first output.
    pub(super) fn op(graph: &Graph<'_>, op: &Op<'_>) -> Place {
        let operation = OperationPlace {
            index: op.index,
            name: graph.op_name(op).to_owned(),
            kind: op.kind().to_owned(),
        };
        Place {
            function: Some(graph.function.name.clone()),
            operation: Some(operation),
            tensor: op.output().map(|id| graph.name(id).to_owned()),
            layer: graph.layer(op),
            ..Place::default()
        }
    }

    /// A value: the operation that defines it, or an input.
    pub(super) fn value(graph: &Graph<'_>, id: ValueId) -> Place {
        let place = match graph.producer(id) {
            Some(op) => Place::op(graph, &op),
            None => Place::function(&graph.function.name),
        };
        place.tensor(graph.name(id))
    }

    pub(super) fn function(name: &str) -> Place {
        Place { function: Some(name.to_owned()), ..Place::default() }
    }

    /// A package as a whole; an empty name is that of the package at hand.
    pub(super) fn package(name: &str) -> Place {
        Place { package: name.to_owned(), ..Place::default() }
    }

    pub(super) fn tensor(mut self, name: &str) -> Place {
        self.tensor = Some(name.to_owned());
        self
    }

    pub(super) fn dimension(mut self, dimension: usize) -> Place {
        self.dimension = Some(dimension);
        self
    }

    /// The place as waivers see it: `package/function/operation or tensor`, as far as it is known.
    pub fn path(&self) -> String {
        let last = self.operation.as_ref().map(|op| &op.name).or(self.tensor.as_ref());
        let parts = [Some(&self.package), self.function.as_ref(), last];
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/")
    }
}

/// One finding of a rule.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The rule.
    pub rule: RuleText,
    /// How bad this case is.
    pub severity: Severity,
    /// What was found.
    pub message: String,
    /// Where.
    pub place: Place,
    /// Which of the function's shapes it was found at, from 0.
    pub shape_index: usize,
}

/// Where a rule puts what it finds.
pub(super) struct Sink<'a> {
    rule: &'static Rule,
    severity: Severity,
    package: &'a str,
    diagnostics: &'a mut Diagnostics,
}

impl<'a> Sink<'a> {
    pub(super) fn new(rule: &'static Rule, package: &'a str, diagnostics: &'a mut Diagnostics) -> Sink<'a> {
        Sink { rule, severity: rule.severity, package, diagnostics }
    }

    pub(super) fn op(&mut self, graph: &Graph<'_>, op: &Op<'_>, message: impl Into<String>) {
        self.at(graph, Place::op(graph, op), message);
    }

    /// A finding at every operation of some types that a prediction carries out.
    pub(super) fn op_types(&mut self, graph: &Graph<'_>, types: &[&str], message: &str) {
        for op in graph.runtime_ops().filter(|op| types.contains(&op.kind())) {
            self.op(graph, &op, message);
        }
    }

    /// A finding at an operation, about another tensor than its first output.
    pub(super) fn tensor(&mut self, graph: &Graph<'_>, op: &Op<'_>, id: ValueId, message: impl Into<String>) {
        self.at(graph, Place::op(graph, op).tensor(graph.name(id)), message);
    }

    /// A finding at an input, an output or a state of a function, whatever its shape.
    pub(super) fn feature(&mut self, graph: &Graph<'_>, name: &str, message: impl Into<String>) {
        self.report(Place::function(&graph.function.name).tensor(name), message);
    }

    /// A finding in a function at the graph's shape.
    pub(super) fn at(&mut self, graph: &Graph<'_>, place: Place, message: impl Into<String>) {
        self.push(place, message.into(), graph.shape_index);
    }

    /// A finding that no shape matters to.
    pub(super) fn report(&mut self, place: Place, message: impl Into<String>) {
        self.push(place, message.into(), 0);
    }

    /// The same rule with another severity.
    pub(super) fn with(&mut self, severity: Severity) -> Sink<'_> {
        Sink { severity, rule: self.rule, package: self.package, diagnostics: self.diagnostics }
    }

    /// Says that a function or the whole package could not be checked.
    pub(super) fn skip(&mut self, function: Option<&str>, needs: &'static str) {
        let place = Place { function: function.map(str::to_owned), ..Place::package(self.package) };
        self.diagnostics.not_checked.push(NotChecked::new(self.rule, Some(place.path()), needs));
    }

    fn push(&mut self, mut place: Place, message: String, shape_index: usize) {
        if place.package.is_empty() {
            self.package.clone_into(&mut place.package);
        }
        let (rule, severity) = (self.rule.text(), self.severity);
        self.diagnostics.findings.push(Finding { rule, severity, message, place, shape_index });
    }
}
