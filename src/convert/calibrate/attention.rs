//! Causal self-attention of whole sequences in f32.

use rayon::prelude::*;

use super::hidden::normalize;
use crate::model::{Attention, Norm, Rope};
use anemeter_kernels::gemm::{Extents, Matrix, multiply};

/// Queries, keys and values of all tokens, a row for each.
pub(super) struct Projected {
    pub(super) query: Vec<f32>,
    pub(super) key: Vec<f32>,
    pub(super) value: Vec<f32>,
}

/// What the heads give, a row for each token.
pub(super) fn attend(
    attention: &Attention,
    projected: &Projected,
    ranges: &[std::ops::Range<usize>],
) -> Vec<f32> {
    let Attention { heads, head_dim, .. } = *attention;
    let width = heads * head_dim;
    let mut mixed = vec![0.0; projected.query.len()];
    for range in ranges {
        let rows = &mut mixed[range.start * width..range.end * width];
        let each: Vec<Vec<f32>> =
            (0..heads).into_par_iter().map(|head| one_head(attention, projected, range, head)).collect();
        rows.par_chunks_mut(width.max(1)).enumerate().for_each(|(token, row)| {
            for (out, head) in row.chunks_mut(head_dim.max(1)).zip(&each) {
                out.copy_from_slice(&head[token * head_dim..(token + 1) * head_dim]);
            }
        });
    }
    mixed
}

/// Queries as attention takes them.
pub(super) fn place_query(attention: &Attention, rows: &mut [f32], ranges: &[std::ops::Range<usize>]) {
    let Attention { heads, head_dim, .. } = *attention;
    let width = heads * head_dim;
    place(rows, width, head_dim, (attention.query_norm.as_ref(), attention.rope.as_ref()), ranges);
    let Some(growth) = attention.growth else { return };
    for range in ranges {
        let rows = rows[range.start * width..range.end * width].chunks_mut(width.max(1));
        rows.enumerate().for_each(|(position, row)| {
            let factor = growth.factor(position);
            row.iter_mut().for_each(|x| *x *= factor);
        });
    }
}

/// Keys and values as attention takes them.
pub(super) fn place_key_and_value(
    attention: &Attention,
    (key, value): (&mut [f32], &mut [f32]),
    ranges: &[std::ops::Range<usize>],
) {
    let Attention { kv_heads, head_dim, .. } = *attention;
    let width = kv_heads * head_dim;
    place(key, width, head_dim, (attention.key_norm.as_ref(), attention.rope.as_ref()), ranges);
    place(value, width, head_dim, (attention.value_norm.as_ref(), None), ranges);
}

/// Norm and rotation of heads.
fn place(
    rows: &mut [f32],
    width: usize,
    head_dim: usize,
    (norm, rope): (Option<&Norm>, Option<&Rope>),
    ranges: &[std::ops::Range<usize>],
) {
    if let Some(norm) = norm {
        normalize(rows, norm);
    }
    let Some(rope) = rope else { return };
    let half = rope.dims / 2;
    for range in ranges {
        let (cos, sin) = rope.table(0..range.len(), range.len());
        let rows = rows[range.start * width..range.end * width].par_chunks_mut(width.max(1));
        rows.zip(cos.par_chunks(rope.dims.max(1))).zip(sin.par_chunks(rope.dims.max(1))).for_each(
            |((row, cos), sin)| {
                for head in row.chunks_mut(head_dim.max(1)) {
                    for i in 0..half {
                        let (a, b) = (head[i], head[half + i]);
                        head[i] = a * cos[i] - b * sin[i];
                        head[half + i] = b * cos[half + i] + a * sin[half + i];
                    }
                }
            },
        );
    }
}

/// What one head gives for one sequence.
fn one_head(
    attention: &Attention,
    projected: &Projected,
    range: &std::ops::Range<usize>,
    head: usize,
) -> Vec<f32> {
    let Attention { heads, kv_heads, head_dim, scale, window, softcap, .. } = *attention;
    let (tokens, shared) = (range.len(), head / (heads / kv_heads.max(1)).max(1));
    let of = |rows: &'_ [f32], count: usize, index: usize| -> std::ops::Range<usize> {
        let start = range.start * count * head_dim + index * head_dim;
        start..rows.len().min(range.end * count * head_dim)
    };
    let query = Matrix {
        data: &projected.query[of(&projected.query, heads, head)],
        row_stride: heads * head_dim,
        column_stride: 1,
    };
    let stride = kv_heads * head_dim;
    let key = Matrix {
        data: &projected.key[of(&projected.key, kv_heads, shared)],
        row_stride: stride,
        column_stride: 1,
    };
    let value = Matrix {
        data: &projected.value[of(&projected.value, kv_heads, shared)],
        row_stride: stride,
        column_stride: 1,
    };
    let mut scores = vec![0.0; tokens * tokens];
    multiply(Extents { m: tokens, k: head_dim, n: tokens }, query, key.transposed(), &mut scores);
    for (token, row) in scores.chunks_mut(tokens).enumerate() {
        let first = window.map_or(0, |window| (token + 1).saturating_sub(window));
        softmax(row, first..token + 1, (scale, softcap));
    }
    let mut out = vec![0.0; tokens * head_dim];
    let scores = Matrix::row_major(&scores, tokens);
    multiply(Extents { m: tokens, k: tokens, n: head_dim }, scores, value, &mut out);
    out
}

/// Shares of the visible scores; the others are zero.
fn softmax(row: &mut [f32], visible: std::ops::Range<usize>, (scale, softcap): (f32, Option<f32>)) {
    let seen = &mut row[visible.clone()];
    seen.iter_mut().for_each(|x| *x *= scale);
    if let Some(cap) = softcap {
        seen.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
    }
    let most = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for x in seen.iter_mut() {
        *x = (*x - most).exp();
        sum += *x;
    }
    seen.iter_mut().for_each(|x| *x /= sum);
    row[..visible.start].fill(0.0);
    row[visible.end..].fill(0.0);
}
