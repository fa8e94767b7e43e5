//! The shapes a function may be called with.

use crate::{Dim, Feature, FeatureType, Function, Interface, Type, ValueId};

/// How many choices of shapes a function has, at least the default one.
pub(super) fn count(interface: Option<&Interface>) -> usize {
    let features = interface.iter().flat_map(|interface| &interface.inputs);
    features.filter_map(Feature::enumerated).map(<[_]>::len).max().unwrap_or(1).max(1)
}

/// Names a choice by the first input that varies.
pub(super) fn label(interface: Option<&Interface>, choice: usize) -> Option<String> {
    let varies = |feature: &&Feature| feature.enumerated().is_some_and(|shapes| shapes.len() > 1);
    let feature = interface?.inputs.iter().find(varies)?;
    let shape = feature.enumerated()?.get(choice)?;
    Some(format!("{} {shape:?}", feature.name))
}

/// The types of the inputs at a choice of shapes; ranges stand at their default.
pub(super) fn inputs(
    function: &Function,
    interface: Option<&Interface>,
    choice: usize,
) -> Vec<(ValueId, Type)> {
    let Some(interface) = interface else { return Vec::new() };
    let input = |&id: &ValueId| {
        let value = function.value(id);
        let feature = interface.inputs.iter().find(|feature| feature.name == value.name)?;
        let FeatureType::Array(array) = &feature.ty else { return None };
        let shape = feature.enumerated().and_then(|shapes| shapes.get(choice)).unwrap_or(&array.shape);
        let mut tensor = value.ty.tensor()?.clone();
        let is_open = tensor.rank() != Some(tensor.shape.len()) || tensor.concrete().is_none();
        if !is_open || shape.is_empty() {
            return None;
        }
        tensor.shape = shape.iter().map(|&size| Dim::Fixed(size)).collect();
        Some((id, tensor.into()))
    };
    function.inputs.iter().filter_map(input).collect()
}
