//! `scaled_dot_product_attention`.

use half::f16;
use rayon::prelude::*;

use crate::kernels::attention::Head;
use crate::kernels::convert::to_f32;
use crate::kernels::floats::Sink;
use crate::mil::op::domain::FLOAT;
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, TensorType, Type};
use crate::tensor::{DType, Shape, TensorView, shape};

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "scaled_dot_product_attention",
    since: Opset::Ios18,
    params: &[
        Param::value("query", FLOAT).group('T'),
        Param::value("key", FLOAT).group('T'),
        Param::value("value", FLOAT).group('T'),
        Param::value("attn_mask", &[DType::Bool, DType::F16, DType::F32]).group('M').optional(),
    ],
    infer,
    eval: Eval::Kernel(eval),
}];

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (query, key, value) = (call.ty("query")?, call.ty("key")?, call.ty("value")?);
    let (Some(rank), Some(key_rank), Some(value_rank)) = (query.rank(), key.rank(), value.rank()) else {
        return Ok(vec![TensorType::new(query.dtype, vec![Dim::Variadic]).into()]);
    };
    if rank != key_rank || rank != value_rank {
        return Err(OpError::new(format!(
            "`query`, `key` and `value` have different ranks: {rank}, {key_rank} and {value_rank}"
        )));
    }
    if rank < 3 {
        return Err(OpError::new(format!(
            "`query`, `key` and `value` have rank {rank}, at least 3 is needed"
        )));
    }
    let (rows, columns) = (rank - 2, rank - 1);
    let mut pairs = vec![("query", query, "key", key, columns), ("key", key, "value", value, rows)];
    for axis in 0..rows {
        pairs.push(("query", query, "key", key, axis));
        pairs.push(("query", query, "value", value, axis));
    }
    for (a_name, a, b_name, b, axis) in pairs {
        if let (Dim::Fixed(x), Dim::Fixed(y)) = (a.shape[axis], b.shape[axis])
            && x != y
        {
            return Err(OpError::new(format!(
                "`{a_name}` has {x} and `{b_name}` has {y} in dimension {axis} of {rank}"
            )));
        }
    }
    if let Some(mask) = call.opt_ty("attn_mask")? {
        check_mask(mask, query, key.shape[rows])?;
    }
    let mut shape = query.shape.clone();
    shape[columns] = value.shape[columns];
    Ok(vec![TensorType::new(query.dtype, shape).into()])
}

/// A mask has all keys in its last dimension, and broadcasts to the scores.
fn check_mask(mask: &TensorType, query: &TensorType, keys: Dim) -> Result<(), OpError> {
    let Some(rank) = mask.rank() else { return Ok(()) };
    let scores: Vec<Dim> = query.shape[..query.shape.len() - 1].iter().copied().chain([keys]).collect();
    let Some(missing) = scores.len().checked_sub(rank).filter(|_| rank > 0) else {
        return Err(OpError::new(format!("`attn_mask` has rank {rank}, scores have {}", scores.len())));
    };
    for (axis, (&dim, &score)) in mask.shape.iter().zip(&scores[missing..]).enumerate() {
        let last = axis + 1 == rank;
        if let (Dim::Fixed(found), Dim::Fixed(wanted)) = (dim, score)
            && found != wanted
            && (last || found != 1)
        {
            return Err(OpError::new(format!(
                "`attn_mask` is a {mask}, whose dimension {axis} does not broadcast to {wanted}"
            )));
        }
    }
    Ok(())
}

/// A mask and how it is read as `[*batch, queries, keys]`.
struct Mask<'a> {
    view: TensorView<'a>,
    batch: Shape,
    strides: Shape,
}

impl<'a> Mask<'a> {
    fn new(view: TensorView<'a>, scores: &[usize]) -> Mask<'a> {
        let strides = shape::broadcast_strides(view.shape(), scores);
        Mask { view, batch: scores[..scores.len() - 2].into(), strides }
    }

    /// Where the mask of a head starts.
    fn offset(&self, mut head: usize) -> usize {
        let mut at = 0;
        for (&size, stride) in self.batch.iter().zip(&self.strides).rev() {
            at += head % size * stride;
            head /= size;
        }
        at
    }

    fn apply(&self, at: usize, scores: &mut [f32]) {
        let bytes = self.view.bytes();
        match self.view.dtype() {
            DType::Bool => {
                for (score, &keep) in scores.iter_mut().zip(&bytes[at..]) {
                    *score = if keep == 0 { f32::NEG_INFINITY } else { *score };
                }
            }
            DType::F16 => {
                let mask: &[f16] = self.view.slice().unwrap_or_default();
                scores.iter_mut().zip(&mask[at..]).for_each(|(score, mask)| *score += mask.to_f32());
            }
            _ => {
                let mask: &[f32] = self.view.slice().unwrap_or_default();
                scores.iter_mut().zip(&mask[at..]).for_each(|(score, mask)| *score += mask);
            }
        }
    }
}

/// Heads that are computed side by side, and the memory they may take together.
const LANES: usize = 16;
const LANES_ELEMENTS: usize = 1 << 24;
/// Multiply-adds from which threads are worth their start.
const PARALLEL: usize = 1 << 16;

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let tensors = [call.tensor("query")?, call.tensor("key")?, call.tensor("value")?];
    let (out, scratch) = outputs.with_scratch(0)?;
    if out.shape().contains(&0) {
        return Ok(());
    }
    let [query, key, value] = tensors.map(|tensor| tensor.shape());
    let (rows, columns) = (query.len() - 2, query.len() - 1);
    let head = Head {
        queries: query[rows],
        keys: key[rows],
        embedding: query[columns],
        features: value[columns],
        round_steps: call.rounds(tensors[0].dtype()),
    };
    let scores: Shape = query[..columns].iter().copied().chain([head.keys]).collect();
    let mask = call.opt_tensor("attn_mask")?.map(|view| Mask::new(view, &scores));
    let heads: usize = query[..rows].iter().product();
    let lengths = [head.queries * head.embedding, head.keys * head.embedding, head.keys * head.features];
    let dense = tensors[0].dtype() == DType::F32;
    let copies: usize = if dense { 0 } else { lengths.iter().sum() };
    let out_len = head.queries * head.features;
    let lane = out_len + copies + head.scratch_len();
    let lanes = (LANES_ELEMENTS / lane.max(1)).clamp(1, LANES).min(heads);
    let [work] = scratch.floats([lanes * lane]);
    let mut sink = Sink::new(out)?;
    let macs = heads.saturating_mul(head.queries).saturating_mul(lengths[1] + lengths[2]);
    for first in (0..heads).step_by(lanes) {
        let count = lanes.min(heads - first);
        let compute = |(i, memory): (usize, &mut [f32])| {
            let (out, memory) = memory.split_at_mut(out_len);
            attend(&head, first + i, &tensors, mask.as_ref(), memory, out);
        };
        let work = &mut work[..count * lane];
        if macs >= PARALLEL && count > 1 {
            work.par_chunks_exact_mut(lane).enumerate().for_each(compute);
        } else {
            work.chunks_exact_mut(lane).enumerate().for_each(compute);
        }
        for (i, memory) in work.chunks_exact(lane).enumerate() {
            sink.write((first + i) * out_len, &memory[..out_len]);
        }
    }
    Ok(())
}

/// Computes one head; `memory` holds what has to be converted, then the kernel's own scratch.
fn attend(
    head: &Head,
    index: usize,
    tensors: &[TensorView<'_>; 3],
    mask: Option<&Mask<'_>>,
    memory: &mut [f32],
    out: &mut [f32],
) {
    let mut rest = memory;
    let operands = tensors.map(|tensor| {
        let length = tensor.shape()[tensor.rank() - 2..].iter().product::<usize>();
        let range = index * length..(index + 1) * length;
        match tensor.slice() {
            Ok(values) => &values[range],
            Err(_) => {
                let (copy, tail) = std::mem::take(&mut rest).split_at_mut(length);
                rest = tail;
                to_f32(&tensor, range, copy);
                &*copy
            }
        }
    });
    let offset = mask.map_or(0, |mask| mask.offset(index));
    let apply = |query: usize, scores: &mut [f32]| {
        if let Some(mask) = mask {
            mask.apply(offset + query * mask.strides[mask.batch.len()], scores);
        }
    };
    head.attend(operands, apply, rest, out);
}
