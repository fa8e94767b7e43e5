//! Floating point operations of one operation.

use crate::mil::Binding;
use crate::tensor::{Shape, shape};
use crate::view::{Graph, Op};

/// FLOPs per element of a softmax: maximum, difference, exponential, sum, division.
const SOFTMAX: u64 = 5;
/// FLOPs per element of a norm: mean, difference, square, mean, root and division, scale, shift.
const NORM: u64 = 8;

/// FLOPs of an operation; 0 for those that only move data, and where a shape is unknown.
pub(super) fn of(graph: &Graph<'_>, op: &Op<'_>) -> u64 {
    let x = || graph.arg_dims(op, "x").map_or(0, |dims| count(&dims));
    let out = || op.output().and_then(|id| graph.dims(id)).map_or(0, |dims| count(&dims));
    match op.kind() {
        "linear" | "matmul" | "conv" | "conv_transpose" | "conv_quantized" | "einsum" => {
            let bias = if graph.source(op, "bias").is_some() { out() } else { 0 };
            products(graph, op).unwrap_or(0).saturating_mul(2).saturating_add(bias)
        }
        "scaled_dot_product_attention" => attention(graph, op).unwrap_or(0),
        "softmax" => x().saturating_mul(SOFTMAX),
        "layer_norm" | "batch_norm" | "instance_norm" | "l2_norm" | "local_response_norm" => {
            x().saturating_mul(NORM)
        }
        "avg_pool" | "l2_pool" | "max_pool" => {
            let window = graph.ints(op, "kernel_sizes").unwrap_or_default();
            let window = window.iter().fold(1u64, |area, &n| area.saturating_mul(n.unsigned_abs()));
            out().saturating_mul(window)
        }
        kind if kind.starts_with("reduce_") || kind == "cumsum" => x(),
        kind if moves_only(kind) => 0,
        _ => {
            let is_float = op.output().and_then(|id| graph.ty(id)).is_some_and(|ty| ty.dtype.is_float());
            if is_float { out() } else { 0 }
        }
    }
}

/// Whether an operation moves data without arithmetic.
fn moves_only(kind: &str) -> bool {
    const KINDS: &[&str] = &[
        "reshape",
        "reshape_like",
        "transpose",
        "concat",
        "stack",
        "split",
        "tile",
        "pad",
        "expand_dims",
        "squeeze",
        "identity",
        "cast",
        "flatten2d",
        "reverse",
        "reverse_sequence",
        "read_state",
        "write_state",
        "coreml_update_state",
        "cond",
        "while_loop",
        "fill",
        "fill_like",
        "shape",
        "select",
        "one_hot",
        "topk",
        "argsort",
        "make_list",
        "pixel_shuffle",
        "pixel_unshuffle",
        "depth_to_space",
        "space_to_depth",
        "batch_to_space",
        "space_to_batch",
        "sliding_windows",
        "crop",
        "band_part",
        "range_1d",
    ];
    const PREFIXES: &[&str] = &["slice_", "gather", "scatter", "list_", "non_", "random_"];
    KINDS.contains(&kind) || PREFIXES.iter().any(|prefix| kind.starts_with(prefix))
}

/// Multiplications of a sum of products.
fn products(graph: &Graph<'_>, op: &Op<'_>) -> Option<u64> {
    let out = count(&graph.dims(op.output()?)?);
    match op.kind() {
        "linear" => Some(out.saturating_mul(last(&graph.arg_dims(op, "weight")?))),
        "matmul" => {
            let x = graph.arg_dims(op, "x")?;
            let is_transposed = graph.flag(op, "transpose_x").unwrap_or(false) && x.len() > 1;
            let reduced = if is_transposed { x[x.len() - 2] as u64 } else { last(&x) };
            Some(out.saturating_mul(reduced))
        }
        "conv" | "conv_quantized" => {
            let weight = graph.arg_dims(op, "weight")?;
            Some(out.saturating_mul(count(weight.get(1..)?)))
        }
        "conv_transpose" => {
            let weight = graph.arg_dims(op, "weight")?;
            let x = count(&graph.arg_dims(op, "x")?);
            Some(x.saturating_mul(count(weight.get(1..)?)))
        }
        _ => einsum(graph, op),
    }
}

/// The product of the sizes of all labels of an `einsum`.
fn einsum(graph: &Graph<'_>, op: &Op<'_>) -> Option<u64> {
    let equation = graph.constant(op, "equation")?;
    let equation = std::str::from_utf8(equation.bytes()).ok()?;
    let (inputs, _) = equation.split_once("->")?;
    let mut sizes: Vec<(char, u64)> = Vec::new();
    for (labels, binding) in inputs.split(',').zip(&op.operation.input("values")?.bindings) {
        let Binding::Value(id) = binding else { return None };
        let dims = graph.dims(*id)?;
        for (label, &size) in labels.trim().chars().zip(dims.iter()) {
            match sizes.iter_mut().find(|(known, _)| *known == label) {
                Some((_, known)) => *known = (*known).max(size as u64),
                None => sizes.push((label, size as u64)),
            }
        }
    }
    Some(sizes.iter().fold(1u64, |product, &(_, size)| product.saturating_mul(size)))
}

/// Two products and a softmax.
fn attention(graph: &Graph<'_>, op: &Op<'_>) -> Option<u64> {
    let (query, key) = (graph.arg_dims(op, "query")?, graph.arg_dims(op, "key")?);
    let (value, keys) = (graph.arg_dims(op, "value")?, key[key.len().checked_sub(2)?] as u64);
    let scores = count(query.get(..query.len().checked_sub(1)?)?).saturating_mul(keys);
    let sums = last(&query).saturating_add(last(&value));
    let per_score = sums.saturating_mul(2).saturating_add(SOFTMAX);
    Some(scores.saturating_mul(per_score))
}

fn last(dims: &Shape) -> u64 {
    dims.last().map_or(1, |&n| n as u64)
}

fn count(dims: &[usize]) -> u64 {
    shape::element_count(dims).map_or(u64::MAX, |n| n as u64)
}
