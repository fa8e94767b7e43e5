//! A package in numbers: what `inspect` shows and `compare` sets side by side.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::mil::{
    ArrayType, Binding, Block, ColorSpace, Feature, FeatureType, Flexibility, Function, ImageSizes, Literal,
    LiteralData, Model, Operation,
};
use crate::package::Package;
use crate::tensor::{Bytes, shape};

#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) schema: &'static str,
    pub(crate) package: String,
    pub(crate) spec_version: i32,
    pub(crate) model_bytes: u64,
    pub(crate) weight_bytes: u64,
    pub(crate) default_function: String,
    pub(crate) functions: Vec<FunctionSummary>,
    pub(crate) parameters: Vec<ParameterClass>,
    pub(crate) metadata: Metadata,
    pub(crate) weights: Vec<WeightSummary>,
}

#[derive(Serialize)]
pub(crate) struct FunctionSummary {
    pub(crate) name: String,
    pub(crate) opset: &'static str,
    pub(crate) inputs: Vec<FeatureSummary>,
    pub(crate) outputs: Vec<FeatureSummary>,
    pub(crate) states: Vec<FeatureSummary>,
    pub(crate) operation_count: usize,
    pub(crate) operations: BTreeMap<String, usize>,
}

#[derive(Serialize)]
pub(crate) struct FeatureSummary {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) ty: String,
    pub(crate) shape: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) enumerated_shapes: Vec<Vec<u64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) shape_ranges: Vec<(u64, Option<u64>)>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) optional: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Weights of one kind.
#[derive(Serialize)]
pub(crate) struct ParameterClass {
    pub(crate) scheme: String,
    pub(crate) stored_type: String,
    pub(crate) tensors: usize,
    pub(crate) parameters: u64,
    pub(crate) bytes: u64,
}

#[derive(Serialize)]
pub(crate) struct Metadata {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) author: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) license: String,
    pub(crate) user_defined: BTreeMap<String, String>,
}

#[derive(Serialize)]
pub(crate) struct WeightSummary {
    pub(crate) name: String,
    pub(crate) functions: Vec<String>,
    pub(crate) scheme: String,
    pub(crate) stored_type: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) parameters: u64,
    pub(crate) bytes: u64,
}

impl Summary {
    pub(crate) fn of(package: &Package) -> Summary {
        let model = package.model();
        let weights = weights(model);
        let metadata = &model.metadata;
        Summary {
            schema: "anemeter-inspect-1",
            package: package.path().display().to_string(),
            spec_version: model.spec_version,
            model_bytes: package.model_bytes(),
            weight_bytes: package.weight_files().iter().map(|f| f.bytes).sum(),
            default_function: model.default_function().to_owned(),
            functions: model.program.functions.iter().map(|f| function(model, f)).collect(),
            parameters: classes(&weights),
            metadata: Metadata {
                description: metadata.description.clone(),
                version: metadata.version.clone(),
                author: metadata.author.clone(),
                license: metadata.license.clone(),
                user_defined: metadata.user_defined.iter().cloned().collect(),
            },
            weights,
        }
    }
}

fn function(model: &Model, function: &Function) -> FunctionSummary {
    let mut operations = BTreeMap::new();
    count(&function.body, &mut operations);
    let interface = model.interface(&function.name).cloned().unwrap_or_default();
    let list = |features: &[Feature]| features.iter().map(feature).collect();
    FunctionSummary {
        name: function.name.clone(),
        opset: function.opset.name(),
        inputs: list(&interface.inputs),
        outputs: list(&interface.outputs),
        states: list(&interface.states),
        operation_count: operations.values().sum(),
        operations,
    }
}

/// Operations by kind, nested blocks included; constants are not operations to anyone who counts.
fn count(block: &Block, counts: &mut BTreeMap<String, usize>) {
    for op in &block.operations {
        if op.kind != "const" {
            *counts.entry(op.kind.clone()).or_default() += 1;
        }
        op.blocks.iter().for_each(|block| count(block, counts));
    }
}

fn feature(feature: &Feature) -> FeatureSummary {
    let mut summary = FeatureSummary {
        name: feature.name.clone(),
        ty: String::new(),
        shape: None,
        enumerated_shapes: Vec::new(),
        shape_ranges: Vec::new(),
        optional: feature.optional,
        description: feature.description.clone(),
    };
    match &feature.ty {
        FeatureType::Array(array) | FeatureType::State(array) => describe_array(array, &mut summary),
        FeatureType::Image(image) => {
            let color = match image.color {
                ColorSpace::Grayscale => "grayscale",
                ColorSpace::Rgb => "rgb",
                ColorSpace::Bgr => "bgr",
                ColorSpace::GrayscaleFloat16 => "grayscale fp16",
            };
            summary.ty = format!("{color} image");
            summary.shape = Some(vec![image.height, image.width]);
            match &image.sizes {
                ImageSizes::Fixed => {}
                ImageSizes::Enumerated(sizes) => {
                    summary.enumerated_shapes =
                        sizes.iter().map(|&(width, height)| vec![height, width]).collect();
                }
                ImageSizes::Range { width, height } => summary.shape_ranges = vec![*height, *width],
            }
        }
        FeatureType::Int64 => "int64".clone_into(&mut summary.ty),
        FeatureType::Double => "double".clone_into(&mut summary.ty),
        FeatureType::Text => "string".clone_into(&mut summary.ty),
        FeatureType::Int64Dictionary => "dictionary by int64".clone_into(&mut summary.ty),
        FeatureType::TextDictionary => "dictionary by string".clone_into(&mut summary.ty),
    }
    summary
}

fn describe_array(array: &ArrayType, summary: &mut FeatureSummary) {
    array.dtype.name().clone_into(&mut summary.ty);
    summary.shape = (!array.shape.is_empty()).then(|| array.shape.clone());
    match &array.flexibility {
        Flexibility::Fixed => {}
        Flexibility::Enumerated(shapes) => summary.enumerated_shapes.clone_from(shapes),
        Flexibility::Ranges(ranges) => summary.shape_ranges.clone_from(ranges),
    }
}

/// Every constant of the weight file and every compressed weight, shared ones once, largest first.
fn weights(model: &Model) -> Vec<WeightSummary> {
    let mut found: Vec<WeightSummary> = Vec::new();
    let mut seen: BTreeMap<Vec<(usize, usize)>, usize> = BTreeMap::new();
    for function in &model.program.functions {
        collect(function, &function.body, &mut |key, weight| {
            let index = *seen.entry(key).or_insert_with(|| {
                found.push(weight);
                found.len() - 1
            });
            if found[index].functions.last() != Some(&function.name) {
                found[index].functions.push(function.name.clone());
            }
        });
    }
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    found
}

type OnWeight<'a> = dyn FnMut(Vec<(usize, usize)>, WeightSummary) + 'a;

fn collect(function: &Function, block: &Block, found: &mut OnWeight<'_>) {
    for op in &block.operations {
        if op.kind == "const" || op.kind.starts_with("constexpr_") {
            let stored = stored_literals(op);
            let memory = stored.iter().filter_map(|(_, literal)| memory_of(literal)).collect::<Vec<_>>();
            if !memory.is_empty() {
                let weight = weight(function, op, &stored);
                found(memory.iter().map(|b| (b.as_ptr() as usize, b.len())).collect(), weight);
            }
        }
        op.blocks.iter().for_each(|block| collect(function, block, found));
    }
}

fn stored_literals(op: &Operation) -> Vec<(&str, &Literal)> {
    let bound = op.inputs.iter().flat_map(|argument| {
        argument.bindings.iter().filter_map(|binding| match binding {
            Binding::Literal(literal) => Some((argument.parameter.as_str(), literal)),
            Binding::Value(_) => None,
        })
    });
    let attributes = op.attributes.iter().map(|(name, literal)| (name.as_str(), literal));
    bound.chain(attributes).collect()
}

fn memory_of(literal: &Literal) -> Option<&Bytes> {
    match &literal.data {
        LiteralData::Blob(bytes) => Some(bytes),
        _ => None,
    }
}

fn weight(function: &Function, op: &Operation, stored: &[(&str, &Literal)]) -> WeightSummary {
    let value = op.outputs.last().map(|&id| function.value(id));
    let shape: Vec<u64> = value
        .and_then(|v| v.ty.tensor()?.concrete())
        .map(|shape| shape.iter().map(|&d| d as u64).collect())
        .unwrap_or_default();
    let main =
        ["val", "quantized_data", "data", "indices", "nonzero_data", "indices_nonzero_data", "source_val"]
            .iter()
            .find_map(|main| stored.iter().find(|(name, _)| name == main))
            .map_or("", |(_, literal)| literal.ty.tensor().map_or("", |ty| ty.dtype.name()));
    WeightSummary {
        name: value.map_or_else(String::new, |v| v.name.clone()),
        functions: Vec::new(),
        scheme: scheme(&op.kind).to_owned(),
        stored_type: main.to_owned(),
        parameters: element_count(&shape),
        shape,
        bytes: stored.iter().filter_map(|(_, literal)| memory_of(literal)).map(|b| b.len() as u64).sum(),
    }
}

fn element_count(dims: &[u64]) -> u64 {
    let dims: Vec<usize> = dims.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
    shape::element_count(&dims).map_or(u64::MAX, |n| n as u64)
}

fn scheme(kind: &str) -> &str {
    match kind {
        "const" => "plain",
        "constexpr_affine_dequantize" => "linear",
        "constexpr_blockwise_shift_scale" => "blockwise linear",
        "constexpr_lut_to_dense" => "palette",
        "constexpr_sparse_to_dense" => "sparse",
        "constexpr_lut_to_sparse" => "sparse palette",
        "constexpr_sparse_blockwise_shift_scale" => "sparse linear",
        "constexpr_cast" => "cast",
        other => other,
    }
}

pub(super) fn classes(weights: &[WeightSummary]) -> Vec<ParameterClass> {
    let mut classes: Vec<ParameterClass> = Vec::new();
    for weight in weights {
        let same = |c: &&mut ParameterClass| c.scheme == weight.scheme && c.stored_type == weight.stored_type;
        match classes.iter_mut().find(same) {
            Some(class) => {
                class.tensors += 1;
                class.parameters = class.parameters.saturating_add(weight.parameters);
                class.bytes = class.bytes.saturating_add(weight.bytes);
            }
            None => classes.push(ParameterClass {
                scheme: weight.scheme.clone(),
                stored_type: weight.stored_type.clone(),
                tensors: 1,
                parameters: weight.parameters,
                bytes: weight.bytes,
            }),
        }
    }
    classes.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.scheme.cmp(&b.scheme)));
    classes
}
