//! Every enumerated shape carried through the program: a shape that makes the graph inconsistent is found
//! here and not at the first prediction.

use rayon::prelude::*;

use crate::op::Numerics;
use crate::propagate::{self, Finding, Options};
use crate::{Dim, Feature, Function, Interface, Model, Type, ValueId};

pub(super) fn check_enumerated(model: &Model) -> Vec<Finding> {
    let cases: Vec<(&Function, &Interface, usize)> = (model.program.functions.iter())
        .filter_map(|function| Some((function, model.interface(&function.name)?)))
        .flat_map(|(function, interface)| {
            (0..enumerated_count(interface)).map(move |index| (function, interface, index))
        })
        .collect();
    let findings = |&(function, interface, index): &(&Function, &Interface, usize)| {
        let inputs = inputs_at(function, interface, index);
        let options = Options { fold_bytes: 1 << 16, trust_declared: false, numerics: Numerics::Fast };
        let (_, mut findings) = propagate::propagate(function, &inputs, options);
        for finding in &mut findings {
            finding.message = format!("with enumerated shape {index}: {}", finding.message);
        }
        findings
    };
    cases.par_iter().flat_map_iter(findings).collect()
}

fn enumerated_count(interface: &Interface) -> usize {
    interface.inputs.iter().filter_map(Feature::enumerated).map(<[_]>::len).max().unwrap_or(0)
}

/// The function's input types with the `index`-th shape of every enumerated input.
fn inputs_at(function: &Function, interface: &Interface, index: usize) -> Vec<(ValueId, Type)> {
    function
        .inputs
        .iter()
        .filter_map(|&id| {
            let value = function.value(id);
            let feature = interface.inputs.iter().find(|f| f.name == value.name)?;
            let shape = feature.enumerated()?.get(index)?;
            let mut tensor = value.ty.tensor()?.clone();
            tensor.shape = shape.iter().map(|&size| Dim::Fixed(size)).collect();
            Some((id, tensor.into()))
        })
        .collect()
}
