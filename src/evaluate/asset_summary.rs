//! A Core AI asset in numbers: what `inspect` shows and `compare` sets side by side.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::summary::{ParameterClass, WeightSummary, classes};
use crate::coreai::asset::Asset;
use crate::coreai::{Attribute, Dim, Graph, Op, Port, Region, Type};

#[derive(Serialize)]
pub(crate) struct AssetSummary {
    pub(crate) schema: &'static str,
    pub(crate) asset: String,
    /// The version of the dialect that it needs, as a date.
    pub(crate) version: u32,
    pub(crate) producer: String,
    pub(crate) bytecode_producer: String,
    /// Bytes of the program without its weights.
    pub(crate) program_bytes: u64,
    pub(crate) weight_bytes: u64,
    /// The SHA-256 that the asset has for itself; not compared with its bytes.
    pub(crate) recorded_sha256: Option<String>,
    pub(crate) functions: Vec<AssetFunction>,
    /// Private graphs, which functions call.
    pub(crate) composites: Vec<Composite>,
    pub(crate) parameters: Vec<ParameterClass>,
    pub(crate) metadata: AssetTexts,
    /// Attributes of inputs and outputs that are not shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dropped_attributes: Vec<String>,
    pub(crate) weights: Vec<WeightSummary>,
}

#[derive(Serialize)]
pub(crate) struct AssetFunction {
    pub(crate) name: String,
    pub(crate) inputs: Vec<PortSummary>,
    pub(crate) outputs: Vec<PortSummary>,
    pub(crate) states: Vec<PortSummary>,
    pub(crate) operation_count: usize,
    pub(crate) operations: BTreeMap<String, usize>,
}

#[derive(Serialize)]
pub(crate) struct PortSummary {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) ty: String,
    /// Sizes; absent where they are known only at run time.
    pub(crate) shape: Vec<Option<u64>>,
    /// How it lies in memory, where that is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) constraints: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Composite {
    pub(crate) name: String,
    /// The operation that it stands for, such as `rms_norm`.
    pub(crate) stands_for: Option<String>,
    pub(crate) operation_count: usize,
}

#[derive(Serialize)]
pub(crate) struct AssetTexts {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) author: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) license: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) creation_date: String,
    pub(crate) other: BTreeMap<String, serde_json::Value>,
}

impl AssetSummary {
    pub(crate) fn of(asset: &Asset) -> AssetSummary {
        let program = asset.program();
        let metadata = asset.metadata();
        let (functions, private): (Vec<_>, Vec<_>) =
            program.graphs.iter().partition(|graph| !graph.is_private);
        let weights = weights(asset);
        let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        AssetSummary {
            schema: "anemeter-inspect-asset-1",
            asset: asset.path().display().to_string(),
            version: program.version,
            producer: metadata.producer.clone(),
            bytecode_producer: asset.bytecode_producer().to_owned(),
            program_bytes: asset.file_len() - asset.weight_len(),
            weight_bytes: asset.weight_len(),
            recorded_sha256: asset.recorded_sha256().map(hex),
            functions: functions.into_iter().map(function).collect(),
            composites: private.into_iter().map(composite).collect(),
            parameters: classes(&weights),
            metadata: AssetTexts {
                description: metadata.description.clone(),
                author: metadata.author.clone(),
                license: metadata.license.clone(),
                creation_date: metadata.creation_date.clone(),
                other: metadata.other.clone(),
            },
            dropped_attributes: asset.dropped().iter().cloned().collect(),
            weights,
        }
    }
}

fn function(graph: &Graph) -> AssetFunction {
    let is_state = |port: &&Port| matches!(port.ty, Type::Handle(_));
    let (states, inputs): (Vec<_>, Vec<_>) = graph.inputs.iter().partition(is_state);
    let outputs = graph.outputs.iter().filter(|port| port.ty != Type::Token);
    let operations = operations(&graph.body);
    AssetFunction {
        name: graph.name.clone(),
        inputs: inputs.into_iter().map(port).collect(),
        outputs: outputs.map(port).collect(),
        states: states.into_iter().map(port).collect(),
        operation_count: operations.values().sum(),
        operations,
    }
}

fn composite(graph: &Graph) -> Composite {
    let stands_for = match &graph.composite {
        Some(Attribute::Opaque { name, .. }) => Some(name.clone()),
        _ => None,
    };
    let operation_count = operations(&graph.body).values().sum();
    Composite { name: graph.name.clone(), stands_for, operation_count }
}

/// Operations by kind, without those of decompositions, which are not carried out; constants and the end of a graph are
/// not operations to anyone who counts.
fn operations(body: &Region) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for op in &body.ops {
        if !matches!(op.name.as_ref(), "primitive.constant_v1" | "dataflow.output_v1") {
            *counts.entry(op.name.to_string()).or_default() += 1;
        }
    }
    counts
}

fn port(port: &Port) -> PortSummary {
    let ty = match &port.ty {
        Type::Handle(inner) => inner,
        other => other,
    };
    match ty {
        Type::Tensor { dims, element, constraints } => PortSummary {
            name: port.name.clone(),
            ty: element.name().to_owned(),
            shape: dims.iter().map(size).collect(),
            constraints: constraints.as_ref().map(ToString::to_string),
        },
        other => PortSummary {
            name: port.name.clone(),
            ty: other.to_string(),
            shape: Vec::new(),
            constraints: None,
        },
    }
}

fn size(dim: &Dim) -> Option<u64> {
    match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Dynamic => None,
    }
}

/// Every resource once, with the graphs that use it, largest first.
fn weights(asset: &Asset) -> Vec<WeightSummary> {
    let names: HashMap<usize, &str> =
        asset.resources().iter().map(|(name, resource)| (Arc::as_ptr(&resource.0).addr(), &**name)).collect();
    let mut found: Vec<WeightSummary> = Vec::new();
    let mut seen: HashMap<usize, usize> = HashMap::new();
    for graph in &asset.program().graphs {
        let roles = roles(&graph.body);
        let mut next = graph.body.arguments.len();
        for op in &graph.body.ops {
            let id = next;
            next += op.results.len();
            let Some((key, mut weight)) = weight(op, &names) else { continue };
            roles.get(&id).copied().unwrap_or("plain").clone_into(&mut weight.scheme);
            let index = *seen.entry(key).or_insert_with(|| {
                found.push(weight);
                found.len() - 1
            });
            if found[index].functions.last() != Some(&graph.name) {
                found[index].functions.push(graph.name.clone());
            }
        }
    }
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    found
}

/// What values are to the first operation that decompresses them.
fn roles(body: &Region) -> HashMap<usize, &'static str> {
    let mut roles = HashMap::new();
    for op in &body.ops {
        let names: &[&str] = match op.name.as_ref() {
            "primitive.blockwise_shift_scale_v1" | "primitive.blockwise_shift_scale_v2" => {
                &["blockwise linear", "scale", "offset", "offset"]
            }
            "primitive.lut_to_dense_v1" => &["palette", "table of a palette"],
            _ => continue,
        };
        for (operand, role) in op.operands.iter().zip(names) {
            roles.entry(operand.0 as usize).or_insert(*role);
        }
    }
    roles
}

/// A constant in the weight section, and what tells it apart.
fn weight(op: &Op, names: &HashMap<usize, &str>) -> Option<(usize, WeightSummary)> {
    let (Some(Some(Attribute::DenseResource(resource))), [Type::Tensor { dims, element, .. }]) =
        (op.properties.first(), &op.results[..])
    else {
        return None;
    };
    let key = Arc::as_ptr(&resource.0).addr();
    let shape: Vec<u64> = dims.iter().filter_map(size).collect();
    let summary = WeightSummary {
        name: names.get(&key).copied().unwrap_or_default().to_owned(),
        functions: Vec::new(),
        scheme: String::new(),
        stored_type: element.name().to_owned(),
        parameters: shape.iter().fold(1, |product, size| size.saturating_mul(product)),
        shape,
        bytes: resource.byte_len(),
    };
    Some((key, summary))
}
