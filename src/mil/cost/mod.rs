//! A static cost model: FLOPs and bytes of a prediction, from shapes alone, per operation and function. Nothing is
//! measured.
//!
//! FLOPs count a multiply-add as two. Bytes count what an operation must read and write if nothing stays in a cache:
//! its inputs, its outputs, and its weights as they are stored, compressed. The two are weighed as in the roofline
//! model (Williams, Waterman and Patterson, CACM 52(4), 2009): whichever takes longer is the time.
//!
//! ```text
//! FLOP/s ^         _________ peak          decoding one token: about 1 FLOP per byte, far left
//!        |       /                         prefill: 2 FLOPs per weight and token, to the right
//!        |     /  bandwidth
//!        |   /
//!        +--------|----------> FLOPs per byte
//!              BALANCE
//! ```
//!
//! `docs/cost.md` has the rules.

mod bound;
mod flops;
mod operands;
mod traffic;

pub use bound::{Bandwidth, Bound, bounds};
pub use operands::tensor_bytes;

use serde::Serialize;

use crate::arguments::Arguments;
use crate::graph::{Graph, Op};
use crate::op::{Bindings, Call, OpDef};
use crate::{Opset, TensorType};
use operands::GraphOperands;

/// FLOPs per byte at which arithmetic and memory take the same time on a Neural Engine: 11 to 38 TOPS at the 60 to
/// 270 GB/s of their chips are 110 to 180.
pub const BALANCE: u64 = 128;

/// What is bound to the parameters of an operation, and how large it is.
pub trait Operands: Bindings {
    /// Bytes in memory of the `index`-th value bound to a parameter; 0 where its size is unknown.
    fn bytes(&self, param: usize, index: usize) -> u64;

    /// Bytes as stored, if it is the same in every prediction.
    fn stored_bytes(&self, param: usize, index: usize) -> Option<u64>;
}

/// What one operation costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Floating-point operations, a multiply-add counting as two.
    pub flops: u64,
    /// Bytes of weights read, as they are stored.
    pub weight_bytes: u64,
    /// Bytes of other tensors read and written.
    pub activation_bytes: u64,
}

impl Cost {
    /// What an operation costs. One that no opset defines costs nothing that could be known.
    pub fn of(graph: &Graph<'_>, op: &Op<'_>) -> Cost {
        let Some(def) = op.def else { return Cost::default() };
        let (arguments, _) = Arguments::resolve(op.operation, def);
        let operands = GraphOperands::new(graph, &arguments);
        let outputs = op.operation.outputs.iter().filter_map(|&id| graph.ty(id));
        let written = outputs.map(tensor_bytes).fold(0, u64::saturating_add);
        let first = op.output().and_then(|id| graph.ty(id));
        Cost::of_call((def, graph.function.opset), &operands, first, written)
    }

    /// What a call costs that gives a first result of type `first`, and results of `written` bytes in all.
    pub fn of_call(
        (def, opset): (&'static OpDef, Opset),
        operands: &impl Operands,
        first: Option<&TensorType>,
        written: u64,
    ) -> Cost {
        let (weight_bytes, activation_bytes) = traffic::of(def, operands, written);
        let flops = flops::of(def.class, &Call::new(def, opset, 1, operands), first);
        Cost { flops, weight_bytes, activation_bytes }
    }

    /// Bytes of weights and of all other traffic.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes.saturating_add(self.activation_bytes)
    }

    /// Arithmetic intensity: FLOPs per byte.
    pub fn intensity(&self) -> f64 {
        if self.bytes() == 0 { 0.0 } else { self.flops as f64 / self.bytes() as f64 }
    }

    /// Relative time on a device that is bound by memory or by arithmetic, whichever takes longer, in bytes.
    pub fn weight(&self) -> u64 {
        self.bytes().max(self.flops / BALANCE)
    }

    fn plus(self, other: Cost) -> Cost {
        Cost {
            flops: self.flops.saturating_add(other.flops),
            weight_bytes: self.weight_bytes.saturating_add(other.weight_bytes),
            activation_bytes: self.activation_bytes.saturating_add(other.activation_bytes),
        }
    }
}

/// What a function costs at one of its shapes.
#[derive(Debug, Clone, Serialize)]
pub struct FunctionCost {
    /// The function.
    pub function: String,
    /// The shape, where it has several.
    pub shape: Option<String>,
    /// Tokens that one prediction takes, where the inputs tell.
    pub tokens: Option<u64>,
    /// The sum over its operations.
    pub total: Cost,
    /// Arithmetic intensity: FLOPs per byte.
    pub intensity: f64,
    /// By kind of operation, most expensive first.
    pub kinds: Vec<KindCost>,
}

/// What the operations of one kind cost together.
#[derive(Debug, Clone, Serialize)]
pub struct KindCost {
    /// The kind, such as `conv`.
    pub kind: String,
    /// How many there are.
    pub operations: usize,
    /// What they cost.
    pub cost: Cost,
}

/// What a function costs at the shape of the graph. Nested blocks count once.
pub fn of(graph: &Graph<'_>) -> FunctionCost {
    let mut kinds: Vec<KindCost> = Vec::new();
    for op in graph.runtime_ops() {
        let cost = Cost::of(graph, &op);
        match kinds.iter_mut().find(|entry| entry.kind == op.kind()) {
            Some(entry) => {
                entry.operations += 1;
                entry.cost = entry.cost.plus(cost);
            }
            None => kinds.push(KindCost { kind: op.kind().to_owned(), operations: 1, cost }),
        }
    }
    kinds.sort_by(|a, b| b.cost.weight().cmp(&a.cost.weight()).then_with(|| a.kind.cmp(&b.kind)));
    let total = kinds.iter().fold(Cost::default(), |sum, entry| sum.plus(entry.cost));
    FunctionCost {
        function: graph.function.name.clone(),
        shape: graph.shape_label.clone(),
        tokens: tokens(graph),
        intensity: total.intensity(),
        total,
        kinds,
    }
}

/// Tokens of a prediction: the length of `input_ids`, or of `hidden` in the layout (batch, channels, 1, sequence).
fn tokens(graph: &Graph<'_>) -> Option<u64> {
    graph.function.inputs.iter().find_map(|&id| {
        let dims = graph.dims(id)?;
        match (graph.name(id), &dims[..]) {
            ("input_ids", [.., length]) | ("hidden", [_, _, 1, length]) => Some(*length as u64),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests;
