//! The shapes a function may be called with.

use crate::{Dim, Feature, FeatureType, Function, ImageSizes, ImageType, Interface, Type, ValueId};

/// How many choices of shapes a function has, at least the default one.
pub(super) fn count(interface: Option<&Interface>) -> usize {
    let features = interface.iter().flat_map(|interface| &interface.inputs);
    features.map(choices).max().unwrap_or(1).max(1)
}

/// Names a choice by the first input that varies.
pub(super) fn label(interface: Option<&Interface>, choice: usize) -> Option<String> {
    let feature = interface?.inputs.iter().find(|feature| choices(feature) > 1)?;
    let shape = match &feature.ty {
        FeatureType::Image(image) => {
            enumerated_size(image, choice).map(|[height, width]| vec![height, width])
        }
        _ => feature.enumerated()?.get(choice).cloned(),
    };
    Some(format!("{} {:?}", feature.name, shape?))
}

/// How many shapes an input enumerates.
fn choices(feature: &Feature) -> usize {
    match &feature.ty {
        FeatureType::Image(ImageType { sizes: ImageSizes::Enumerated(sizes), .. }) => sizes.len(),
        _ => feature.enumerated().map_or(0, <[_]>::len),
    }
}

/// Height and width of an image at a choice.
fn enumerated_size(image: &ImageType, choice: usize) -> Option<[u64; 2]> {
    let ImageSizes::Enumerated(sizes) = &image.sizes else { return None };
    sizes.get(choice).map(|&(width, height)| [height, width])
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
        let shape = match &feature.ty {
            FeatureType::Array(array) => {
                feature.enumerated().and_then(|shapes| shapes.get(choice)).unwrap_or(&array.shape).clone()
            }
            FeatureType::Image(image) => {
                let [height, width] = enumerated_size(image, choice).unwrap_or([image.height, image.width]);
                vec![1, image.color.channels(), height, width]
            }
            _ => return None,
        };
        let mut tensor = value.ty.tensor()?.clone();
        let is_open = tensor.rank() != Some(tensor.shape.len()) || tensor.concrete().is_none();
        if !is_open || shape.is_empty() {
            return None;
        }
        tensor.shape = shape.into_iter().map(Dim::Fixed).collect();
        Some((id, tensor.into()))
    };
    function.inputs.iter().filter_map(input).collect()
}
