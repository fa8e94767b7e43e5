//! Parts of graphs that several rules look for.

use super::*;
use crate::op::WeightAxes;

/// Words in the names of inputs whose last axis counts tokens.
const LENGTH_WORDS: &[&str] = &["ids", "hidden", "mask", "cache"];

/// Products whose operands may both be activations, as those of attention are.
pub(super) const ACTIVATION_PRODUCTS: &[&str] = &["matmul", "einsum"];

/// A linear map by a constant: a convolution, a `linear`, or a product with a constant.
pub(super) struct LinearMap<'m> {
    pub(super) op: Op<'m>,
    pub(super) weight: ValueId,
    axes: WeightAxes,
}

impl LinearMap<'_> {
    /// The axis of the weight, or of its scales, that outputs lie along.
    pub(super) fn output_axis(&self, graph: &Graph<'_>, rank: usize) -> usize {
        let is_set = |parameter: &str| graph.flag(&self.op, parameter) == Some(true);
        self.axes.output_input(rank, is_set).map_or(0, |(output, _)| output)
    }
}

/// Operations that are linear maps by a constant. Of two constant factors the right one is the weight.
pub(super) fn linear_maps<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = LinearMap<'m>> + 'g {
    graph.runtime_ops().filter_map(|op| {
        op.def?.params.iter().rev().find_map(|param| {
            let is_map = |axes: &WeightAxes| !matches!(axes, WeightAxes::Table | WeightAxes::Recurrent);
            let axes = param.weight.filter(is_map)?;
            let weight = graph.arg(&op, param.name).filter(|&id| graph.is_constant(id))?;
            Some(LinearMap { op, weight, axes })
        })
    })
}

/// Runtime operations with an fp16 output, and that output's sizes.
pub(super) fn half_outputs<'g, 'm>(
    graph: &'g Graph<'m>,
) -> impl Iterator<Item = (Op<'m>, ValueId, Shape)> + 'g {
    graph.runtime_ops().flat_map(move |op| {
        op.operation.outputs.iter().filter_map(move |&id| {
            let ty = graph.ty(id).filter(|ty| ty.dtype == DType::F16)?;
            Some((op, id, ty.concrete()?))
        })
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
        let is_named = LENGTH_WORDS.iter().any(|word| name.contains(word)) && !is_recurrent_state(graph, id);
        if let Some(length) = state_length(graph, id) {
            return Some((id, length));
        }
        let dims = graph.dims(id).filter(|dims| is_named && dims.len() > 1)?;
        Some((id, *dims.last()?))
    });
    lengths.max_by_key(|&(_, length)| length)
}

/// Whether an input is where a recurrent layer starts from: a vector per sequence, whatever its name.
pub(super) fn is_recurrent_state(graph: &Graph<'_>, input: ValueId) -> bool {
    /// Casts and changes of shape that converters put before the layer.
    const STEPS: usize = 6;
    fn starts(graph: &Graph<'_>, id: ValueId, steps: usize) -> bool {
        let reaches = |op: Op<'_>| match op.kind() {
            "lstm" | "gru" | "rnn" => {
                ["initial_h", "initial_c"].iter().any(|state| graph.arg(&op, state) == Some(id))
            }
            "cast" | "concat" | "expand_dims" | "reshape" | "slice_by_index" | "split" | "squeeze"
            | "transpose" => op.operation.outputs.iter().any(|&id| starts(graph, id, steps - 1)),
            _ => false,
        };
        steps > 0 && graph.consumers(id).any(reaches)
    }
    starts(graph, input, STEPS)
}

/// The length of a state: the longer of its last two axes.
pub(super) fn state_length(graph: &Graph<'_>, id: ValueId) -> Option<usize> {
    let crate::Type::State(ty) = graph.any_ty(id) else { return None };
    let dims = ty.concrete()?;
    dims.iter().rev().take(2).copied().max()
}

/// The states of a function, with their types.
pub(super) fn states<'g>(
    graph: &'g Graph<'_>,
) -> impl Iterator<Item = (ValueId, &'g crate::TensorType)> + 'g {
    graph.function.inputs.iter().filter_map(|&id| match graph.any_ty(id) {
        crate::Type::State(ty) => Some((id, ty)),
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
