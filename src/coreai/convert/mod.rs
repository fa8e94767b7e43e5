//! MIL programs as aicode: every function at each of its enumerated shapes becomes a graph.
//!
//! Types are those that MIL infers. States become handles, which are read and written in the order that tokens give;
//! broadcasts, which MIL implies, become operations. Weights stay streams, shared by all functions that use them.

mod body;
mod composites;
mod emit;
mod error;
mod names;
mod open;
pub mod ops;
mod types;
mod weights;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use body::Body;
use emit::FunctionState;
pub use error::ConvertError;
use error::Refusal;
use weights::Weights;

use crate::program::{Attribute, Graph, HwConstraints, Port, Program, Type, ValueId};
use anemeter_mil::graph::{Graph as MilGraph, graphs};
use anemeter_mil::propagate::place;
use anemeter_mil::verify::Verified;
use anemeter_mil::{Model, Type as MilType, ValueId as MilId};

/// The dialect version that is written: the one of iOS 27 and macOS 27.
pub const VERSION: u32 = 20_260_409;

/// A function of MIL at one of its shapes, and what it is called in aicode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionShape {
    /// Its name in aicode, such as `prefill_128`.
    pub name: String,
    /// Its name in MIL, such as `prefill`.
    pub function: String,
    /// The choice of shapes, from 0.
    pub shape: usize,
}

/// What of a conversion the MIL program does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversion {
    /// Functions that become one graph of open sizes, where others become one graph for each of their enumerated shapes.
    pub open: BTreeSet<String>,
    /// How inputs, outputs and states of a name lie in memory, where that is fixed.
    pub constraints: BTreeMap<String, HwConstraints>,
}

/// A MIL program as aicode.
pub fn from_mil(model: &Verified) -> Result<Program, ConvertError> {
    from_mil_as(model, &Conversion::default())
}

/// A MIL program as aicode, with open sizes and layouts in memory.
pub fn from_mil_as(model: &Verified, conversion: &Conversion) -> Result<Program, ConvertError> {
    let mut weights = Weights::default();
    let mut converted: Vec<Graph> = Vec::new();
    let mut shapes: Vec<Graph> = Vec::new();
    let mut named = named(model.model()).peekable();
    while let Some((graph, name)) = named.next() {
        let function = &graph.function.name;
        let is_open = conversion.open.contains(function);
        let becomes =
            function_graph(&graph, if is_open { function.clone() } else { name }, &mut weights, conversion)?;
        if !is_open {
            converted.push(becomes);
            continue;
        }
        shapes.push(becomes);
        if named.peek().is_none_or(|(next, _)| next.function.name != *function) {
            let joined = open::join(&std::mem::take(&mut shapes));
            converted.push(joined.map_err(|Refusal(message)| ConvertError::Interface {
                function: function.clone(),
                message: format!("cannot be written for all sizes at once: {message}"),
            })?);
        }
    }
    Ok(Program { version: VERSION, graphs: converted })
}

/// The functions of the aicode that a model becomes, in order.
pub fn functions(model: &Model) -> impl Iterator<Item = FunctionShape> {
    named(model).map(|(graph, name)| FunctionShape {
        name,
        function: graph.function.name.clone(),
        shape: graph.shape_index,
    })
}

fn named(model: &Model) -> impl Iterator<Item = (MilGraph<'_>, String)> {
    let mut used = HashSet::new();
    graphs(model).map(move |graph| {
        let name = names::unique(&graph, &mut used);
        (graph, name)
    })
}

fn function_graph(
    graph: &MilGraph<'_>,
    name: String,
    weights: &mut Weights,
    conversion: &Conversion,
) -> Result<Graph, ConvertError> {
    let interface =
        |Refusal(message)| ConvertError::Interface { function: graph.function.name.clone(), message };
    let inputs = graph.function.inputs.iter().map(|&id| input(graph, id, conversion));
    let inputs = inputs.collect::<Result<Vec<Port>, _>>().map_err(interface)?;
    let mut body = Body::new(inputs.iter().map(|port| port.ty.clone()).collect());
    let arguments: Vec<ValueId> = (0..inputs.len()).map(|index| body.argument(index)).collect();
    let arguments = arguments.into_iter().map(|argument| body.unconstrained(argument));
    let values: HashMap<_, _> = graph.function.inputs.iter().copied().zip(arguments).collect();
    let mut state = FunctionState { graph, body, weights, values, tokens: HashMap::new() };
    open_states(&mut state);
    for op in graph.runtime_ops() {
        state.emit(&op).map_err(|Refusal(message)| refused(graph, &op, message))?;
    }
    let mut outputs = Vec::new();
    let mut returned = Vec::new();
    for &id in graph.function.inputs.iter().filter(|&&id| is_state(graph, id)) {
        outputs.push(Port { name: graph.name(id).to_owned(), ty: Type::Token });
        returned.push(state.tokens[&id]);
    }
    for &id in &graph.function.body.outputs {
        let mut value = state.value(id).map_err(interface)?;
        if let Some(constraints) = conversion.constraints.get(graph.name(id)) {
            value = state.body.constrained(value, constraints);
        }
        outputs.push(Port { name: graph.name(id).to_owned(), ty: state.body.ty(value).clone() });
        returned.push(value);
    }
    Ok(Graph {
        name,
        inputs,
        outputs,
        is_private: false,
        no_inline: false,
        externalize: false,
        composite: None,
        params: Attribute::Array(Vec::new()),
        body: state.body.returning(&returned),
    })
}

fn is_state(graph: &MilGraph<'_>, id: MilId) -> bool {
    matches!(graph.any_ty(id), MilType::State(_))
}

/// Every state begins with the same token.
fn open_states(state: &mut FunctionState<'_, '_>) {
    let states: Vec<MilId> =
        state.graph.function.inputs.iter().copied().filter(|&id| is_state(state.graph, id)).collect();
    if states.is_empty() {
        return;
    }
    let token = state.body.push("dataflow.create_token_v1", &[], Type::Token);
    state.tokens.extend(states.into_iter().map(|id| (id, token)));
}

fn input(graph: &MilGraph<'_>, id: MilId, conversion: &Conversion) -> Result<Port, Refusal> {
    let name = graph.name(id);
    let refused = |Refusal(message): Refusal| Refusal(format!("input `{name}`: {message}"));
    let placed = |ty: Type| match (ty, conversion.constraints.get(name)) {
        (Type::Tensor { dims, element, .. }, Some(constraints)) => {
            Type::Tensor { dims, element, constraints: Some(constraints.clone()) }
        }
        (ty, _) => ty,
    };
    let ty = match graph.any_ty(id) {
        MilType::Tensor(ty) => placed(types::tensor(ty).map_err(refused)?),
        MilType::State(ty) => Type::Handle(Box::new(placed(types::tensor(ty).map_err(refused)?))),
        other => return Err(Refusal(format!("input `{name}` is a {other}; Core AI takes tensors"))),
    };
    Ok(Port { name: name.to_owned(), ty })
}

fn refused(graph: &MilGraph<'_>, op: &anemeter_mil::graph::Op<'_>, message: String) -> ConvertError {
    let function = graph.function.name.clone();
    let operation = place(graph.function, op.operation);
    // A constant that an operation takes may be what has no form.
    match message.strip_prefix(ops::UNSUPPORTED) {
        Some(kind) => ConvertError::Unsupported { function, operation, kind: kind.to_owned() },
        None => ConvertError::Operation { function, operation, message },
    }
}

#[cfg(test)]
mod tests;
