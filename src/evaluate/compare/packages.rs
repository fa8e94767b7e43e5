//! Two packages side by side: operations, weights, inputs and outputs, sizes, cost and predicted placement.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::document::{Differing, Packages, PredictedPlacement, WeightClass};
use crate::compare::SCHEMA;
use crate::evaluate::summary::{FeatureSummary, FunctionSummary, Summary};
use crate::lint::{self, LintError};
use crate::mil::verify;
use crate::package::{Package, PackageError};
use crate::{cost, graph};

pub(super) type Facts<V> = BTreeMap<(String, String), V>;

/// What is known of a package.
struct Described {
    sizes: Facts<u64>,
    weights: Facts<WeightClass>,
    interface: Facts<String>,
    operations: Facts<usize>,
    cost: Facts<u64>,
    placement: Facts<PredictedPlacement>,
}

/// Why two packages were not compared.
#[derive(Debug, thiserror::Error)]
pub enum PackagesError {
    /// A package cannot be read.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A program is not well formed.
    #[error("{}: {fault}", path.display())]
    Structure {
        /// The package.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The placement cannot be predicted.
    #[error(transparent)]
    Lint(#[from] LintError),
}

/// What differs between two packages.
pub fn compare([baseline, candidate]: [&Path; 2]) -> Result<Packages, PackagesError> {
    let (a, b) = (Described::of(baseline)?, Described::of(candidate)?);
    Ok(Packages {
        schema: SCHEMA,
        kind: "packages",
        baseline: baseline.display().to_string(),
        candidate: candidate.display().to_string(),
        sizes: differing(&a.sizes, &b.sizes),
        weights: differing(&a.weights, &b.weights),
        interface: differing(&a.interface, &b.interface),
        operations: differing(&a.operations, &b.operations),
        cost: differing(&a.cost, &b.cost),
        placement: differing(&a.placement, &b.placement),
    })
}

/// What both do not have alike, in order.
pub(super) fn differing<V: Clone + PartialEq>(a: &Facts<V>, b: &Facts<V>) -> Vec<Differing<V>> {
    let mut keys: Vec<&(String, String)> = a.keys().chain(b.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differs = |key: &&(String, String)| a.get(*key) != b.get(*key);
    let keys = keys.into_iter().filter(differs);
    keys.map(|key| Differing {
        function: key.0.clone(),
        what: key.1.clone(),
        baseline: a.get(key).cloned(),
        candidate: b.get(key).cloned(),
    })
    .collect()
}

impl Described {
    fn of(path: &Path) -> Result<Described, PackagesError> {
        let package = Package::open(path)?;
        if let Some(fault) = verify::structure(package.model()).into_iter().next() {
            return Err(PackagesError::Structure { path: path.to_owned(), fault: fault.to_string() });
        }
        let summary = Summary::of(&package);
        let whole = |what: &str| (String::new(), what.to_owned());
        let sizes = [(whole("program"), summary.model_bytes), (whole("weight files"), summary.weight_bytes)];
        let weights = summary.parameters.iter().map(|class| {
            let (tensors, parameters, bytes) = (class.tensors, class.parameters, class.bytes);
            let what = format!("{}, {}", class.scheme, class.stored_type);
            (whole(&what), WeightClass { tensors, parameters, bytes })
        });
        let subject = lint::Subject::open(path)?;
        let linted = lint::lint(&subject, &lint::Setting::default(), &[])?;
        let placement = linted.placements.iter().map(|found| {
            let placed =
                PredictedPlacement { share: found.residency_by_cost, transitions: found.transitions };
            (at(&found.function, found.shape.as_deref(), "on the Neural Engine"), placed)
        });
        Ok(Described {
            sizes: sizes.into(),
            weights: weights.collect(),
            interface: interface(&summary),
            operations: operations(&summary),
            cost: graph::graphs(package.model()).flat_map(|graph| costs(&graph)).collect(),
            placement: placement.collect(),
        })
    }
}

fn at(function: &str, shape: Option<&str>, what: &str) -> (String, String) {
    let shape = shape.map(|shape| format!(" at {shape}")).unwrap_or_default();
    (format!("{function}{shape}"), what.to_owned())
}

fn costs(graph: &graph::Graph<'_>) -> [((String, String), u64); 3] {
    let cost = cost::of(graph);
    let key = |what: &str| at(&cost.function, cost.shape.as_deref(), what);
    [
        (key("FLOPs"), cost.total.flops),
        (key("bytes of weights"), cost.total.weight_bytes),
        (key("other bytes"), cost.total.activation_bytes),
    ]
}

fn operations(summary: &Summary) -> Facts<usize> {
    let of = |function: &FunctionSummary| {
        let name = function.name.clone();
        let kinds = function.operations.clone();
        kinds.into_iter().map(move |(kind, count)| ((name.clone(), kind), count))
    };
    summary.functions.iter().flat_map(of).collect()
}

fn interface(summary: &Summary) -> Facts<String> {
    let mut facts = Facts::new();
    facts.insert((String::new(), "specification".to_owned()), format!("version {}", summary.spec_version));
    for function in &summary.functions {
        facts.insert((function.name.clone(), "opset".to_owned()), function.opset.to_owned());
        let all = [("input", &function.inputs), ("output", &function.outputs), ("state", &function.states)];
        for (role, features) in all {
            for feature in features {
                facts.insert((function.name.clone(), format!("{role} {}", feature.name)), typed(feature));
            }
        }
    }
    facts
}

fn typed(feature: &FeatureSummary) -> String {
    let list = |shape: &[u64]| {
        let dims: Vec<String> = shape.iter().map(ToString::to_string).collect();
        format!("[{}]", dims.join(", "))
    };
    let shapes: Vec<String> = match feature.enumerated_shapes.is_empty() {
        true => feature.shape.iter().map(|shape| list(shape)).collect(),
        false => feature.enumerated_shapes.iter().map(|shape| list(shape)).collect(),
    };
    let range = |&(low, high): &(u64, Option<u64>)| {
        format!("{low}..{}", high.map(|high| high.to_string()).unwrap_or_default())
    };
    let ranges: Vec<String> = feature.shape_ranges.iter().map(range).collect();
    let ranges = if ranges.is_empty() { String::new() } else { format!(" within {}", ranges.join(" × ")) };
    format!("{} {}{ranges}", feature.ty, shapes.join(" or "))
}
