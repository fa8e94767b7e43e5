//! Every enumerated shape carried through the program: a shape that makes the graph inconsistent is found
//! here and not at the first prediction.

use super::Report;
use crate::mil::op::Numerics;
use crate::mil::propagate::{self, Options};
use crate::mil::{ArrayType, Dim, FeatureType, Flexibility, Function, Interface, Model, Type, ValueId};

pub(super) fn check_enumerated(model: &Model, report: &mut Report) {
    for function in &model.program.functions {
        let Some(interface) = model.interface(&function.name) else { continue };
        for index in 0..enumerated_count(interface) {
            let inputs = inputs_at(function, interface, index);
            let options = Options { fold_bytes: 1 << 16, trust_declared: false, numerics: Numerics::Fast };
            let (_, findings) = propagate::propagate(function, &inputs, options);
            report.0.extend(findings.into_iter().map(|mut finding| {
                finding.message = format!("with enumerated shape {index}: {}", finding.message);
                finding
            }));
        }
    }
}

fn enumerated_count(interface: &Interface) -> usize {
    interface.inputs.iter().filter_map(|f| shapes_of(&f.ty)).map(<[_]>::len).max().unwrap_or(0)
}

fn shapes_of(ty: &FeatureType) -> Option<&[Vec<u64>]> {
    match ty {
        FeatureType::Array(ArrayType { flexibility: Flexibility::Enumerated(shapes), .. }) => Some(shapes),
        _ => None,
    }
}

/// The function's input types with the `index`-th shape of every enumerated input.
fn inputs_at(function: &Function, interface: &Interface, index: usize) -> Vec<(ValueId, Type)> {
    function
        .inputs
        .iter()
        .filter_map(|&id| {
            let value = function.value(id);
            let feature = interface.inputs.iter().find(|f| f.name == value.name)?;
            let shape = shapes_of(&feature.ty)?.get(index)?;
            let mut tensor = value.ty.tensor()?.clone();
            tensor.shape = shape.iter().map(|&size| Dim::Fixed(size)).collect();
            Some((id, tensor.into()))
        })
        .collect()
}
