//! Bytes that one operation reads and writes.

use crate::mil::ValueId;
use crate::tensor::shape;
use crate::view::{Graph, Op};

/// Operations that give another view of the same bytes, or hand them to or from a state in place.
const VIEWS: &[&str] = &[
    "reshape",
    "reshape_like",
    "expand_dims",
    "squeeze",
    "flatten2d",
    "identity",
    "read_state",
    "write_state",
    "coreml_update_state",
    "shape",
    "cond",
    "while_loop",
];
/// Operations that read no more of their tensors than they give.
const PARTS: &[&str] = &["slice_by_index", "slice_by_size", "gather", "gather_nd", "gather_along_axis"];

/// Bytes of weights as stored, and of other tensors.
pub(super) fn of(graph: &Graph<'_>, op: &Op<'_>) -> (u64, u64) {
    if VIEWS.contains(&op.kind()) {
        return (0, 0);
    }
    let written = sum(op.operation.outputs.iter().map(|&id| tensor_bytes(graph, id)));
    if PARTS.contains(&op.kind()) {
        return part(graph, op, written);
    }
    if op.kind() == "slice_update" {
        let update = graph.arg(op, "update").map_or(0, |id| tensor_bytes(graph, id));
        return (0, update.saturating_mul(2));
    }
    let (constants, inputs): (Vec<_>, Vec<_>) = op.values().partition(|&id| graph.is_constant(id));
    let is_float = |id: &ValueId| graph.ty(*id).is_some_and(|ty| ty.dtype.is_float());
    let weights = sum(constants.into_iter().filter(is_float).map(|id| graph.stored_bytes(id)));
    let read = sum(inputs.into_iter().map(|id| tensor_bytes(graph, id)));
    (weights, read.saturating_add(written))
}

/// Rows of a table that is a weight are read as they are stored.
fn part(graph: &Graph<'_>, op: &Op<'_>, written: u64) -> (u64, u64) {
    let Some(x) = graph.arg(op, "x").filter(|&id| graph.is_constant(id)) else {
        return (0, written.saturating_mul(2));
    };
    let share = tensor_bytes(graph, x).max(1);
    let stored = u128::from(graph.stored_bytes(x)) * u128::from(written) / u128::from(share);
    (u64::try_from(stored).unwrap_or(u64::MAX), written)
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// Bytes of a tensor in memory; 0 where its size is unknown.
fn tensor_bytes(graph: &Graph<'_>, id: ValueId) -> u64 {
    let bytes = graph.ty(id).and_then(|ty| ty.dtype.byte_len(shape::element_count(&ty.concrete()?)?));
    bytes.map_or(0, |n| n as u64)
}
