//! `scaled_dot_product_attention`.

use super::prelude::*;
use crate::op::SOFTMAX_FLOPS;
use anemeter_kernels::attention::Head;
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::floats::Sink;
use anemeter_kernels::parallel::for_each_chunk;

pub(super) const OPS: &[OpDef] =
    &[define(OpClass::Product(flops), "scaled_dot_product_attention", Ios18, infer, eval).takes(&[
        Param::value("query", FLOAT).group('T'),
        Param::value("key", FLOAT).group('T'),
        Param::value("value", FLOAT).group('T'),
        Param::value("attn_mask", &[DType::Bool, DType::F16, DType::F32]).group('M').optional(),
    ])];

/// Two products and a softmax.
fn flops(call: &Call<'_>, _: &[usize]) -> Option<u64> {
    let dims = |name| call.ty(name).ok()?.concrete();
    let (query, key, value) = (dims("query")?, dims("key")?, dims("value")?);
    let (&width, rows) = query.split_last()?;
    let keys = *key.get(key.len().checked_sub(2)?)? as u64;
    let per_score = (width as u64).saturating_add(*value.last()? as u64).saturating_mul(2);
    Some(elements(rows).saturating_mul(keys).saturating_mul(per_score.saturating_add(SOFTMAX_FLOPS)))
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let (query, key, value) = (call.ty("query")?, call.ty("key")?, call.ty("value")?);
    let (Some(rank), Some(key_rank), Some(value_rank)) = (query.rank(), key.rank(), value.rank()) else {
        return Ok(dims::unranked(query.dtype));
    };
    if rank != key_rank || rank != value_rank {
        refuse!("`query`, `key` and `value` have different ranks: {rank}, {key_rank} and {value_rank}");
    }
    refuse_if!(rank < 3, "`query`, `key` and `value` have rank {rank}, at least 3 is needed");
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
            refuse!("`{a_name}` has {x} and `{b_name}` has {y} in dimension {axis} of {rank}");
        }
    }
    if let Some(mask) = call.opt_ty("attn_mask")? {
        check_mask(mask, query, key.shape[rows])?;
    }
    let mut shape = query.shape.clone();
    shape[columns] = value.shape[columns];
    Ok(dims::one(query.dtype, shape))
}

/// A mask has all keys in its last dimension, and broadcasts to the scores.
fn check_mask(mask: &TensorType, query: &TensorType, keys: Dim) -> Result {
    let Some(rank) = mask.rank() else { return Ok(()) };
    let scores: Vec<Dim> = query.shape[..query.shape.len() - 1].iter().copied().chain([keys]).collect();
    let Some(missing) = scores.len().checked_sub(rank).filter(|_| rank > 0) else {
        refuse!("`attn_mask` has rank {rank}, scores have {}", scores.len())
    };
    for (axis, (&dim, &score)) in mask.shape.iter().zip(&scores[missing..]).enumerate() {
        let last = axis + 1 == rank;
        if let (Dim::Fixed(found), Dim::Fixed(wanted)) = (dim, score)
            && found != wanted
            && (last || found != 1)
        {
            refuse!("`attn_mask` is a {mask}, whose dimension {axis} does not broadcast to {wanted}");
        }
    }
    Ok(())
}

/// A mask and how it is read as `[*batch, queries, keys]`.
struct Mask<'a> {
    values: MaskValues<'a>,
    batch: Shape,
    strides: Shape,
}

#[derive(Clone, Copy)]
enum MaskValues<'a> {
    /// Scores that are kept, where they are not zero.
    Keep(&'a [u8]),
    AddF16(&'a [f16]),
    AddF32(&'a [f32]),
}

impl<'a> Mask<'a> {
    fn new(view: TensorView<'a>, scores: &[usize]) -> Result<Mask<'a>> {
        let strides = shape::broadcast_strides(view.shape(), scores);
        let values = match view.dtype() {
            DType::Bool => MaskValues::Keep(view.bools()?),
            DType::F16 => MaskValues::AddF16(view.slice()?),
            _ => MaskValues::AddF32(view.slice()?),
        };
        Ok(Mask { values, batch: scores[..scores.len() - 2].into(), strides })
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
        match self.values {
            MaskValues::Keep(mask) => {
                for (score, &keep) in scores.iter_mut().zip(&mask[at..]) {
                    *score = if keep == 0 { f32::NEG_INFINITY } else { *score };
                }
            }
            MaskValues::AddF16(mask) => {
                scores.iter_mut().zip(&mask[at..]).for_each(|(score, mask)| *score += mask.to_f32());
            }
            MaskValues::AddF32(mask) => {
                scores.iter_mut().zip(&mask[at..]).for_each(|(score, mask)| *score += mask);
            }
        }
    }
}

/// Heads that are computed side by side, and the memory they may take together.
const LANES: usize = 16;
const LANES_ELEMENTS: usize = 1 << 24;

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let tensors = [call.tensor("query")?, call.tensor("key")?, call.tensor("value")?];
    let (out, scratch) = outputs.with_scratch(0)?;
    done_if!(out.shape().contains(&0));
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
    let mask = call.opt_tensor("attn_mask")?.map(|view| Mask::new(view, &scores)).transpose()?;
    let heads: usize = query[..rows].iter().product();
    let lengths = [head.queries * head.embedding, head.keys * head.embedding, head.keys * head.features];
    let dense = tensors[0].dtype() == DType::F32;
    let copies: usize = if dense { 0 } else { lengths.iter().sum() };
    let out_len = head.queries * head.features;
    let lane = out_len + copies + head.scratch_len();
    let lanes = (LANES_ELEMENTS / lane.max(1)).clamp(1, LANES).min(heads);
    let [memory] = scratch.floats([lanes * lane]);
    let mut sink = Sink::new(out)?;
    let work = heads.saturating_mul(head.queries).saturating_mul(lengths[1] + lengths[2]);
    for first in (0..heads).step_by(lanes) {
        let count = lanes.min(heads - first);
        let memory = &mut memory[..count * lane];
        for_each_chunk(memory, lane, work, |i, memory| {
            let (out, memory) = memory.split_at_mut(out_len);
            attend(&head, first + i, &tensors, mask.as_ref(), memory, out);
        });
        for (i, memory) in memory.chunks_exact(lane).enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(shape: &[usize], step: usize) -> Tensor {
        let values: Vec<_> = (0..shape.iter().product())
            .map(|i: usize| f16::from_f32((i * step % 17) as f32 / 8.0 - 1.0))
            .collect();
        tensor(shape, &values)
    }

    fn attention(more: &[(&str, Tensor)]) -> Result<Vec<f32>> {
        let own = [
            ("query", floats(&[2, 1, 1], &[0.0, 3.0])),
            ("key", floats(&[2, 3, 1], &[0.0, 1.0, 2.0, 0.0, 0.0, 100.0])),
            ("value", floats(&[2, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ];
        let out = run("scaled_dot_product_attention", Ios18, &[&own, more].concat())?;
        assert_eq!(out[0].shape(), [2, 1, 2]);
        Ok(out[0].view().slice::<f32>()?.to_vec())
    }

    #[test]
    fn masks_choose_keys() {
        assert_eq!(attention(&[]).unwrap(), [3.0, 4.0, 5.0, 6.0]);
        let keep = bools(&[3], &[true, true, false]);
        assert_eq!(attention(&[("attn_mask", keep)]).unwrap(), [2.0, 3.0, 2.0, 3.0]);
        let none = f32::NEG_INFINITY;
        let per_head = floats(&[2, 1, 3], &[0.0, none, 0.0, none, none, 0.0]);
        assert_eq!(attention(&[("attn_mask", per_head)]).unwrap(), [3.0, 4.0, 5.0, 6.0]);
        let halves = tensor(&[1, 3], &[none, 0.0, none].map(f16::from_f32));
        assert_eq!(attention(&[("attn_mask", halves)]).unwrap(), [3.0, 4.0, 3.0, 4.0]);
    }

    #[test]
    fn is_the_composition_of_its_parts_in_either_arithmetic() {
        let (query, key, value) = (halves(&[3, 70, 16], 5), halves(&[3, 40, 16], 7), halves(&[3, 40, 8], 3));
        for numerics in [Numerics::Fast, Numerics::Fp16Exact] {
            let step = |name: &str, args: &[(&str, KnownValue)]| call(name, numerics, args).unwrap();
            let transpose = Tensor::from_bool(true);
            let x = query.clone().into();
            let products = [("x", x), ("y", key.clone().into()), ("transpose_y", transpose.into())];
            let scale = Tensor::scalar(f16::from_f32(0.25));
            let scores = [("x", step("matmul", &products).into()), ("y", scale.into())];
            let weights = step("softmax", &[("x", step("mul", &scores).into())]);
            let expected = step("matmul", &[("x", weights.into()), ("y", value.clone().into())]);
            let operands = [("query", &query), ("key", &key), ("value", &value)];
            let found = step(
                "scaled_dot_product_attention",
                &operands.map(|(name, tensor)| (name, tensor.clone().into())),
            );
            let (found, expected) = (found.view(), expected.view());
            let pairs = found.slice::<f16>().unwrap().iter().zip(expected.slice::<f16>().unwrap());
            let allowed = if numerics == Numerics::Fast { 2e-3 } else { 0.0 };
            for (a, b) in pairs {
                assert!((a.to_f32() - b.to_f32()).abs() <= allowed, "{numerics:?}: {a}, expected {b}");
            }
        }
    }

    #[test]
    fn unknown_lengths_stay_unknown() {
        let ty = |rows: Dim, columns: u64| {
            TensorType::new(DType::F16, vec![Dim::Fixed(1), Dim::Fixed(9), rows, Dim::Fixed(columns)])
        };
        let unknown = Dim::Unknown;
        let types = [("query", ty(unknown, 64)), ("key", ty(unknown, 64)), ("value", ty(Dim::Fixed(5), 32))];
        let out = infer_tensor("scaled_dot_product_attention", &types, &[]).unwrap();
        assert_eq!(out, ty(unknown, 32));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mask = |shape: &[usize]| [("attn_mask", floats(shape, &vec![0.0; shape.iter().product()]))];
        refused(
            attention(&mask(&[4])),
            "`attn_mask` is a tensor<fp32, [4]>, whose dimension 0 does not broadcast to 3",
        );
        assert!(attention(&mask(&[3, 1, 3])).is_err());
        assert!(attention(&mask(&[1, 2, 1, 3])).is_err());
        let heads = [("query", floats(&[1, 1, 1], &[0.0])), ("key", floats(&[2, 1, 1], &[0.0; 2]))];
        let args = [&heads[..], &[("value", floats(&[2, 1, 1], &[0.0; 2]))]].concat();
        let error = run("scaled_dot_product_attention", Ios18, &args).unwrap_err();
        assert_eq!(error.to_string(), "`query` has 1 and `key` has 2 in dimension 0 of 3");
    }
}
