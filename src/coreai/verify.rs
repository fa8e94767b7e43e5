//! Whether a program is consistent: values are defined before they are used, types agree where they meet, constants have
//! as many bytes as their types say, and what is called is there.

use std::collections::{HashMap, HashSet};

use crate::error::{AssetError, Result, quoted};
use crate::{Attribute, Dim, Graph, Op, Port, Program, Region, Type};

/// What ends the region of a graph.
const OUTPUT: &str = "dataflow.output_v1";
/// What ends the region of an operation.
const TERMINATORS: [&str; 2] = ["dataflow.yield_v1", "controlflow.condition_v1"];
/// Operations whose names start like this have no decomposition; all others have one.
const WITHOUT_DECOMPOSITION: [&str; 4] = ["primitive.", "dataflow.", "controlflow.", "ax."];

/// Checks a program.
pub fn verify(program: &Program) -> Result<()> {
    let mut graphs = HashMap::new();
    for graph in &program.graphs {
        if graphs.insert(graph.name.as_str(), graph).is_some() {
            return Err(AssetError::program("there are two graphs of this name").in_graph(&graph.name));
        }
    }
    let verifier = Verifier { graphs };
    program.graphs.iter().try_for_each(|graph| verifier.graph(graph).map_err(|e| e.in_graph(&graph.name)))
}

struct Verifier<'p> {
    graphs: HashMap<&'p str, &'p Graph>,
}

impl Verifier<'_> {
    fn graph(&self, graph: &Graph) -> Result<()> {
        if graph.name.is_empty() {
            return Err(AssetError::program("has no name"));
        }
        for (ports, what) in [(&graph.inputs, "argument"), (&graph.outputs, "result")] {
            names(ports, what)?;
        }
        let inputs: Vec<_> = graph.inputs.iter().map(|port| &port.ty).collect();
        same_types(
            &inputs,
            &graph.body.arguments.iter().collect::<Vec<_>>(),
            "its arguments",
            "its region's",
        )?;
        let last = self.region(&graph.body, &[OUTPUT])?;
        let outputs: Vec<_> = graph.outputs.iter().map(|port| &port.ty).collect();
        same_types(&outputs, &last, "its results", "the operands of its last operation")
    }

    /// Checks a region that one of some operations ends, and gives the types of that one's operands.
    fn region<'r>(&self, region: &'r Region, terminators: &[&str]) -> Result<Vec<&'r Type>> {
        let mut values: Vec<&Type> = region.arguments.iter().collect();
        let mut last = None;
        for (index, op) in region.ops.iter().enumerate() {
            let place = |e: AssetError| e.in_op(index, &op.name);
            let is_last = index + 1 == region.ops.len();
            if terminators.contains(&op.name.as_ref()) != is_last {
                let expected = terminators.join("` or `");
                let message = format!("expected `{expected}` at the end of a region and nowhere else");
                return Err(place(AssetError::program(message)));
            }
            let operands = operands(op, &values).map_err(place)?;
            self.op(op, &operands).map_err(place)?;
            values.extend(&op.results);
            last = Some(operands);
        }
        last.ok_or_else(|| AssetError::program("expected a region with operations, found an empty one"))
    }

    fn op(&self, op: &Op, operands: &[&Type]) -> Result<()> {
        properties(op)?;
        for region in &op.regions {
            self.region(region, &TERMINATORS)?;
        }
        match op.name.as_ref() {
            "primitive.constant_v1" => constant(op),
            "dataflow.invoke_v1" => self.invoke(op, operands),
            name if WITHOUT_DECOMPOSITION.iter().any(|start| name.starts_with(start)) => Ok(()),
            _ => decomposition(op, operands),
        }
    }

    fn invoke(&self, op: &Op, operands: &[&Type]) -> Result<()> {
        let name = match op.properties.get(1) {
            Some(Some(Attribute::ParamConstant { value, .. })) => match &**value {
                Attribute::SymbolRef(path) => path.last(),
                _ => None,
            },
            _ => None,
        };
        let name = name.ok_or_else(|| AssetError::program("expected the name of a graph as its callee"))?;
        let Some(callee) = self.graphs.get(name.as_str()) else {
            return Err(AssetError::program(format!("calls {}, and there is no such graph", quoted(name))));
        };
        let types = |ports: &'_ [Port]| ports.iter().map(|port| port.ty.clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (types(&callee.inputs), types(&callee.outputs));
        same_types(
            operands,
            &inputs.iter().collect::<Vec<_>>(),
            "its operands",
            "the arguments of its callee",
        )?;
        let results: Vec<_> = op.results.iter().collect();
        same_types(&results, &outputs.iter().collect::<Vec<_>>(), "its results", "those of its callee")
    }
}

/// Names by which callers know arguments or results. Those without are known by their order.
fn names(ports: &[Port], what: &str) -> Result<()> {
    let mut seen = HashSet::new();
    for port in ports.iter().filter(|port| !port.name.is_empty()) {
        if !seen.insert(&port.name) {
            let name = quoted(&port.name);
            return Err(AssetError::program(format!("has two {what}s of the name {name}")));
        }
    }
    Ok(())
}

/// The types of an operation's operands, which must be values that are there.
fn operands<'r>(op: &Op, values: &[&'r Type]) -> Result<Vec<&'r Type>> {
    let defined = |operand: &crate::ValueId| {
        values.get(operand.0 as usize).copied().ok_or_else(|| {
            let count = values.len();
            AssetError::program(format!(
                "uses %{}, and only the {count} values before it are there",
                operand.0
            ))
        })
    };
    op.operands.iter().map(defined).collect()
}

fn properties(op: &Op) -> Result<()> {
    let names = crate::bytecode::property_names(&op.name);
    if names.len() != op.properties.len() {
        let (found, expected) = (op.properties.len(), names.len());
        return Err(AssetError::program(format!("expected {expected} properties, found {found}")));
    }
    let missing =
        names.iter().zip(&op.properties).find(|((_, is_optional), value)| !is_optional && value.is_none());
    match missing {
        Some(((name, _), _)) => {
            Err(AssetError::program(format!("expected the property `{name}`, found none")))
        }
        None => Ok(()),
    }
}

/// An operation that is no primitive has a region that computes the same.
fn decomposition(op: &Op, operands: &[&Type]) -> Result<()> {
    let [region] = &op.regions[..] else {
        let found = op.regions.len();
        return Err(AssetError::program(format!("expected one region, its decomposition, found {found}")));
    };
    same_types(
        operands,
        &region.arguments.iter().collect::<Vec<_>>(),
        "its operands",
        "its region's arguments",
    )?;
    let given = region.ops.last().map_or(0, |last| last.operands.len());
    match given == op.results.len() {
        true => Ok(()),
        false => {
            let expected = op.results.len();
            Err(AssetError::program(format!("expected a region that gives {expected} values, found {given}")))
        }
    }
}

fn same_types(found: &[&Type], expected: &[&Type], what: &str, other: &str) -> Result<()> {
    if found.len() != expected.len() {
        let (found, expected) = (found.len(), expected.len());
        return Err(AssetError::program(format!("{what} are {found}, and {other} are {expected}")));
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(index) => {
            let (found, expected) = (found[index], expected[index]);
            let message = format!("number {index} of {what} is {found}, and of {other} {expected}");
            Err(AssetError::program(message))
        }
    }
}

/// A constant has one result, whose type says how many bytes it is.
fn constant(op: &Op) -> Result<()> {
    let [Type::Tensor { dims, element, .. }] = &op.results[..] else {
        return Err(AssetError::program("expected a tensor as the one result"));
    };
    let elements = dims.iter().try_fold(1u64, |product, dim| match dim {
        Dim::Fixed(size) => product.checked_mul(*size),
        Dim::Dynamic => None,
    });
    let expected = |bits: u64, elements: Option<u64>| Some(elements?.checked_mul(bits)?.div_ceil(8));
    let (found, expected) = match op.properties.first() {
        Some(Some(Attribute::DenseElements { is_splat, bytes })) => {
            let elements = if *is_splat { Some(1) } else { elements };
            (bytes.len() as u64, expected(element.inline_bits(), elements))
        }
        Some(Some(Attribute::DenseResource(resource))) => {
            (resource.byte_len(), expected(element.bits(), elements))
        }
        _ => return Err(AssetError::program("expected elements as its value")),
    };
    match expected {
        Some(expected) if expected == found => Ok(()),
        Some(expected) => {
            let ty = &op.results[0];
            Err(AssetError::program(format!("expected {expected} bytes of {ty}, found {found}")))
        }
        None => Err(AssetError::program(format!("expected a shape that is known, found {}", op.results[0]))),
    }
}
