//! Parts of graphs that several rules look for.

use super::*;

/// Words in the names of inputs whose last axis counts tokens.
const LENGTH_WORDS: &[&str] = &["ids", "hidden", "mask", "cache"];

/// The constant weight of a linear map: a convolution, a `linear`, or a product with a constant.
pub(super) fn linear_weight(graph: &Graph<'_>, op: &Op<'_>) -> Option<ValueId> {
    let weight = match op.kind() {
        "conv" | "conv_transpose" | "linear" => graph.arg(op, "weight"),
        "matmul" => {
            [graph.arg(op, "y"), graph.arg(op, "x")].into_iter().flatten().find(|&id| graph.is_constant(id))
        }
        _ => None,
    };
    weight.filter(|&id| graph.is_constant(id))
}

/// Operations that are linear maps by a constant, with their weights.
pub(super) fn linear_maps<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = (Op<'m>, ValueId)> + 'g {
    graph.runtime_ops().filter_map(|op| linear_weight(graph, &op).map(|weight| (op, weight)))
}

/// Runtime operations with an fp16 output, and that output's sizes.
pub(super) fn half_outputs<'g, 'm>(
    graph: &'g Graph<'m>,
) -> impl Iterator<Item = (Op<'m>, ValueId, crate::tensor::Shape)> + 'g {
    graph.runtime_ops().flat_map(move |op| {
        let outputs = op.operation.outputs.iter().copied();
        outputs
            .filter_map(|id| {
                let ty = graph.ty(id)?;
                (ty.dtype == DType::F16).then(|| ty.concrete().map(|dims| (op, id, dims)))?
            })
            .collect::<Vec<_>>()
    })
}

/// Whether a function maps vectors by weights, as layers do; an embedding lookup does not.
pub(super) fn has_layers(graph: &Graph<'_>) -> bool {
    linear_maps(graph).next().is_some()
}

/// The longest sequence that a function sees at its shape: tokens, cache or state, as names of inputs tell.
pub(super) fn sequence_length(graph: &Graph<'_>) -> Option<(ValueId, usize)> {
    let lengths = graph.function.inputs.iter().filter_map(|&id| {
        let name = graph.name(id).to_ascii_lowercase();
        let is_named = LENGTH_WORDS.iter().any(|word| name.contains(word));
        if let Some(length) = state_length(graph, id) {
            return Some((id, length));
        }
        let dims = graph.dims(id).filter(|dims| is_named && dims.len() > 1)?;
        Some((id, *dims.last()?))
    });
    lengths.max_by_key(|&(_, length)| length)
}

/// The length of a state: the longer of its last two axes.
pub(super) fn state_length(graph: &Graph<'_>, id: ValueId) -> Option<usize> {
    let crate::mil::Type::State(ty) = graph.any_ty(id) else { return None };
    let dims = ty.concrete()?;
    dims.iter().rev().take(2).copied().max()
}

/// The states of a function, with their types.
pub(super) fn states<'g>(
    graph: &'g Graph<'_>,
) -> impl Iterator<Item = (ValueId, &'g crate::mil::TensorType)> + 'g {
    graph.function.inputs.iter().filter_map(|&id| match graph.any_ty(id) {
        crate::mil::Type::State(ty) => Some((id, ty)),
        _ => None,
    })
}

/// Whether one of the last `steps` operations before a value is of a kind.
pub(super) fn comes_from(graph: &Graph<'_>, id: ValueId, kinds: &[&str], steps: usize) -> bool {
    let Some(op) = graph.producer(id).filter(|_| steps > 0) else { return false };
    kinds.contains(&op.kind()) || op.values().any(|id| comes_from(graph, id, kinds, steps - 1))
}

/// Whether an operation of a kind uses a value within some steps.
pub(super) fn leads_to(graph: &Graph<'_>, id: ValueId, kinds: &[&str], steps: usize) -> bool {
    let next = |op: Op<'_>| {
        kinds.contains(&op.kind())
            || (steps > 1 && op.operation.outputs.iter().any(|&id| leads_to(graph, id, kinds, steps - 1)))
    };
    steps > 0 && graph.consumers(id).any(next)
}

/// The number of elements.
pub(super) fn count(dims: &[usize]) -> usize {
    shape::element_count(dims).unwrap_or(usize::MAX)
}
