//! Two Core AI assets side by side: operations, weights, inputs and outputs, sizes.

use std::path::Path;

use super::document::{Packages, WeightClass};
use super::packages::{Facts, differing};
use crate::compare::SCHEMA;
use crate::coreai::AssetError;
use crate::coreai::asset::Asset;
use crate::evaluate::asset_summary::{AssetSummary, PortSummary};

/// What differs between two assets. Costs and placements are those of packages only.
pub fn compare([baseline, candidate]: [&Path; 2]) -> Result<Packages, AssetError> {
    let (a, b) = (AssetSummary::of(&Asset::open(baseline)?), AssetSummary::of(&Asset::open(candidate)?));
    Ok(Packages {
        schema: SCHEMA,
        kind: "assets",
        baseline: baseline.display().to_string(),
        candidate: candidate.display().to_string(),
        sizes: differing(&sizes(&a), &sizes(&b)),
        weights: differing(&weights(&a), &weights(&b)),
        interface: differing(&interface(&a), &interface(&b)),
        operations: differing(&operations(&a), &operations(&b)),
        cost: Vec::new(),
        placement: Vec::new(),
    })
}

fn whole(what: &str) -> (String, String) {
    (String::new(), what.to_owned())
}

fn sizes(summary: &AssetSummary) -> Facts<u64> {
    [(whole("program"), summary.program_bytes), (whole("weights"), summary.weight_bytes)].into()
}

fn weights(summary: &AssetSummary) -> Facts<WeightClass> {
    let class = |class: &crate::evaluate::summary::ParameterClass| {
        let (tensors, parameters, bytes) = (class.tensors, class.parameters, class.bytes);
        (
            whole(&format!("{}, {}", class.scheme, class.stored_type)),
            WeightClass { tensors, parameters, bytes },
        )
    };
    summary.parameters.iter().map(class).collect()
}

fn operations(summary: &AssetSummary) -> Facts<usize> {
    let mut facts = Facts::new();
    for function in &summary.functions {
        for (kind, count) in &function.operations {
            facts.insert((function.name.clone(), kind.clone()), *count);
        }
    }
    for composite in &summary.composites {
        let kind = composite.stands_for.as_deref().unwrap_or("unnamed");
        *facts.entry(whole(&format!("graphs of the composite {kind}"))).or_default() += 1;
    }
    facts
}

fn interface(summary: &AssetSummary) -> Facts<String> {
    let mut facts = Facts::new();
    facts.insert(whole("aicode"), format!("version {}", summary.version));
    for function in &summary.functions {
        let all = [("input", &function.inputs), ("output", &function.outputs), ("state", &function.states)];
        for (role, ports) in all {
            for port in ports {
                facts.insert((function.name.clone(), format!("{role} {}", port.name)), typed(port));
            }
        }
    }
    facts
}

fn typed(port: &PortSummary) -> String {
    let dims: Vec<_> =
        port.shape.iter().map(|size| size.map_or_else(|| "?".to_owned(), |size| size.to_string())).collect();
    let constraints = port.constraints.as_ref().map(|text| format!(", {text}")).unwrap_or_default();
    format!("{} [{}]{constraints}", port.ty, dims.join(", "))
}
