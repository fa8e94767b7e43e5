//! Where operations are predicted to run: those that a rule keeps off the Neural Engine, and those on integers, run
//! elsewhere. A prediction from rules and costs, never a measurement.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Finding;
use crate::cost::Cost;
use crate::view::{Graph, Op};

/// Lookups run on the CPU in any function, also where no rule minds them.
const LOOKUPS: &[&str] = &["gather", "gather_nd", "gather_along_axis"];
/// Operations named per island.
const NAMED: usize = 8;

/// The prediction for a function at one of its shapes.
#[derive(Debug, Clone, Serialize)]
pub struct Placement {
    /// Says that nothing here was measured.
    pub basis: &'static str,
    /// The package.
    pub package: String,
    /// The function.
    pub function: String,
    /// The shape, where there are several.
    pub shape: Option<String>,
    /// Operations that a prediction carries out.
    pub operations: usize,
    /// Those predicted to run on the Neural Engine.
    pub on_ane: usize,
    /// The share of the cost that is predicted to be on the Neural Engine; nothing if all costs are 0.
    pub residency_by_cost: Option<f64>,
    /// The share of the operations.
    pub residency_by_operations: Option<f64>,
    /// How often the device changes from one operation to the next.
    pub transitions: usize,
    /// Runs of operations predicted to be off the Neural Engine.
    pub islands: Vec<Island>,
}

/// Operations in a row that are predicted to be off the Neural Engine.
#[derive(Debug, Clone, Serialize)]
pub struct Island {
    /// How many there are.
    pub operations: usize,
    /// The first of them, as `type name`.
    pub names: Vec<String>,
    /// Their share of the function's cost.
    pub cost: f64,
    /// The rules that keep them off; `integers` or `lookup` where the type or the kind alone does.
    pub reasons: Vec<&'static str>,
}

/// Predicts a function's placement from what rules found in it.
pub(super) fn predict(package: &str, graph: &Graph<'_>, findings: &[Finding]) -> Placement {
    let off = Off::new(package, graph, findings);
    let ops: Vec<Op<'_>> = graph.runtime_ops().collect();
    let costs: Vec<u64> = ops.iter().map(|op| Cost::of(graph, op).weight()).collect();
    let total: u64 = costs.iter().fold(0, |sum, &cost| sum.saturating_add(cost));
    let mut islands: Vec<Island> = Vec::new();
    let (mut on_ane, mut on_cost, mut transitions) = (0, 0u64, 0);
    let mut previous = None;
    for (op, &cost) in ops.iter().zip(&costs) {
        let reasons = off.reasons(graph, op);
        let is_on = reasons.is_empty();
        transitions += usize::from(previous.is_some_and(|previous| previous != is_on));
        if is_on {
            on_ane += 1;
            on_cost = on_cost.saturating_add(cost);
        } else {
            if previous != Some(false) {
                islands.push(Island { operations: 0, names: Vec::new(), cost: 0.0, reasons: Vec::new() });
            }
            if let Some(island) = islands.last_mut() {
                island.add(format!("{} {}", op.kind(), graph.op_name(op)), reasons);
                island.cost += if total == 0 { 0.0 } else { cost as f64 / total as f64 };
            }
        }
        previous = Some(is_on);
    }
    Placement {
        basis: "predicted",
        package: package.to_owned(),
        function: graph.function.name.clone(),
        shape: graph.shape_label.clone(),
        operations: ops.len(),
        on_ane,
        residency_by_cost: (total > 0).then(|| on_cost as f64 / total as f64),
        residency_by_operations: (!ops.is_empty()).then(|| on_ane as f64 / ops.len() as f64),
        transitions,
        islands,
    }
}

impl Island {
    fn add(&mut self, name: String, reasons: BTreeSet<&'static str>) {
        self.operations += 1;
        if self.names.len() < NAMED {
            self.names.push(name);
        }
        self.reasons
            .extend(reasons.into_iter().filter(|reason| !self.reasons.contains(reason)).collect::<Vec<_>>());
    }
}

/// What rules keep off the Neural Engine in one function.
struct Off {
    function: BTreeSet<&'static str>,
    operations: BTreeSet<(usize, &'static str)>,
}

impl Off {
    fn new(package: &str, graph: &Graph<'_>, findings: &[Finding]) -> Off {
        let mut off = Off { function: BTreeSet::new(), operations: BTreeSet::new() };
        let here = |finding: &&Finding| {
            finding.rule.off
                && finding.place.package == package
                && finding.place.function.as_ref() == Some(&graph.function.name)
        };
        for finding in findings.iter().filter(here) {
            match &finding.place.operation {
                Some(op) if finding.shape == graph.shape => {
                    off.operations.insert((op.index, finding.rule.id));
                }
                Some(_) => {}
                None => {
                    off.function.insert(finding.rule.id);
                }
            }
        }
        off
    }

    fn reasons(&self, graph: &Graph<'_>, op: &Op<'_>) -> BTreeSet<&'static str> {
        let mut reasons = self.function.clone();
        let own = self.operations.range((op.index, "")..(op.index + 1, ""));
        reasons.extend(own.map(|&(_, rule)| rule));
        let outputs: Vec<_> = op.operation.outputs.iter().filter_map(|&id| graph.ty(id)).collect();
        if !outputs.is_empty() && outputs.iter().all(|ty| !ty.dtype.is_float()) {
            reasons.insert("integers");
        }
        if LOOKUPS.contains(&op.kind()) {
            reasons.insert("lookup");
        }
        reasons
    }
}
