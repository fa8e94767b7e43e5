//! Where operations are predicted to run: those that a rule keeps off the Neural Engine, those on integers and lookups
//! run elsewhere. A prediction from rules and costs, never a measurement.
//!
//! Core ML partitions a program into segments of one device each, in program order. Every border is a transition:
//!
//! ```text
//! conv  relu | gather | add  conv  softmax | cumsum | mul        2 islands, 4 transitions
//! ANE   ANE  | CPU    | ANE  ANE   ANE     | CPU    | ANE
//! ```
//!
//! Shares weight an operation by its roofline cost ([`Cost::weight`]). Neither the speed of the other devices nor the
//! copy at a transition is modelled.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Finding;
use crate::cost::Cost;
use crate::graph::{Graph, Op};
use crate::op::OpClass;

/// The prediction for a function at one of its shapes.
#[derive(Debug, Clone, Serialize)]
pub struct Placement {
    /// Says that nothing here was measured.
    pub basis: &'static str,
    /// Name of the package.
    pub package: String,
    /// Name of the function.
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
    pub islands: Vec<PredictedIsland>,
}

/// Operations in a row that are predicted to be off the Neural Engine.
#[derive(Debug, Clone, Serialize)]
pub struct PredictedIsland {
    /// The operations in program order.
    pub operations: Vec<IslandOperation>,
    /// Their share of the function's cost.
    pub cost: f64,
    /// The rules that keep them off; `integers` or `lookup` where the type or the kind alone does.
    pub reasons: Vec<&'static str>,
}

/// An operation that is predicted to be off the Neural Engine.
#[derive(Debug, Clone, Serialize)]
pub struct IslandOperation {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// What keeps it off, as in [`PredictedIsland::reasons`].
    pub reasons: Vec<&'static str>,
}

/// An operation, its cost and what keeps it off the Neural Engine.
struct PredictedOperation<'m> {
    op: Op<'m>,
    cost: u64,
    reasons: BTreeSet<&'static str>,
}

/// Predicts a function's placement from what rules found in it.
pub(super) fn predict(package: &str, graph: &Graph<'_>, findings: &[Finding]) -> Placement {
    let off = OffAneRules::new(package, graph, findings);
    let predicted = graph.runtime_ops().map(|op| {
        let (cost, reasons) = (Cost::of(graph, &op).weight(), off.reasons(graph, &op));
        PredictedOperation { op, cost, reasons }
    });
    let operations: Vec<_> = predicted.collect();
    let on_ane = || operations.iter().filter(|operation| operation.reasons.is_empty());
    let total = operations.iter().fold(0u64, |sum, operation| sum.saturating_add(operation.cost));
    let on_cost = on_ane().fold(0u64, |sum, operation| sum.saturating_add(operation.cost));
    let runs = || operations.chunk_by(|a, b| a.reasons.is_empty() == b.reasons.is_empty());
    let off_ane = runs().filter(|run| !run[0].reasons.is_empty());
    Placement {
        basis: "predicted",
        package: package.to_owned(),
        function: graph.function.name.clone(),
        shape: graph.shape_label.clone(),
        operations: operations.len(),
        on_ane: on_ane().count(),
        residency_by_cost: (total > 0).then(|| on_cost as f64 / total as f64),
        residency_by_operations: (!operations.is_empty())
            .then(|| on_ane().count() as f64 / operations.len() as f64),
        transitions: runs().count().saturating_sub(1),
        islands: off_ane.map(|run| PredictedIsland::new(graph, run, total)).collect(),
    }
}

impl PredictedIsland {
    fn new(graph: &Graph<'_>, run: &[PredictedOperation<'_>], total: u64) -> PredictedIsland {
        let mut island = PredictedIsland { operations: Vec::new(), cost: 0.0, reasons: Vec::new() };
        for PredictedOperation { op, cost, reasons } in run {
            let new = reasons.iter().filter(|reason| !island.reasons.contains(reason));
            island.reasons.extend(new.copied().collect::<Vec<_>>());
            island.operations.push(IslandOperation {
                name: graph.op_name(op).to_owned(),
                kind: op.kind().to_owned(),
                reasons: reasons.iter().copied().collect(),
            });
            island.cost += *cost as f64 / total.max(1) as f64;
        }
        island
    }
}

/// What rules keep off the Neural Engine in one function.
struct OffAneRules {
    function: BTreeSet<&'static str>,
    operations: BTreeSet<(usize, &'static str)>,
}

impl OffAneRules {
    fn new(package: &str, graph: &Graph<'_>, findings: &[Finding]) -> OffAneRules {
        let mut off = OffAneRules { function: BTreeSet::new(), operations: BTreeSet::new() };
        let here = |finding: &&Finding| {
            finding.rule.off_ane
                && finding.place.package == package
                && finding.place.function.as_ref() == Some(&graph.function.name)
        };
        for finding in findings.iter().filter(here) {
            match &finding.place.operation {
                Some(op) if finding.shape_index == graph.shape_index => {
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
        // Lookups run on the CPU in any function, also where no rule minds them.
        if matches!(op.class(), Some(OpClass::Lookup)) {
            reasons.insert("lookup");
        }
        reasons
    }
}
