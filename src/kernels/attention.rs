//! Scaled dot-product attention (Vaswani et al. 2017) of one head as the operation defines it: GEMM of the scores,
//! softmax and GEMM with the values, for a block of query rows at a time. `decode_attention` and `prefill_attention`
//! are the fast forms.

use super::convert::round_f16;
use super::gemm::{Extents, Matrix, gemm};
use super::softmax::{softmax_f16_steps, softmax_f32};

/// The extents of one head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Number of query rows.
    pub queries: usize,
    /// Key and value rows.
    pub keys: usize,
    /// Elements of a query or key row.
    pub embedding: usize,
    /// Elements of a value row.
    pub features: usize,
    /// Whether every step is rounded to fp16.
    pub round_steps: bool,
}

/// Scores held at a time: 256 KiB, for the second-level cache.
const SCORES: usize = 1 << 16;
const ROWS: usize = 64;

impl Head {
    fn rows(&self) -> usize {
        (SCORES / self.keys.max(1)).clamp(1, ROWS).min(self.queries.max(1))
    }

    /// Elements of scratch memory that [`Head::attend`] needs.
    pub fn scratch_len(&self) -> usize {
        self.rows() * self.keys
    }

    /// `softmax(query x key^T / sqrt(embedding) + mask) x value`. `mask` is called with a query row and its
    /// scaled scores, which it changes.
    pub fn attend(
        &self,
        [query, key, value]: [&[f32]; 3],
        mask: impl Fn(usize, &mut [f32]),
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let Head { queries, keys, embedding, features, round_steps } = *self;
        // A softmax over no keys has no shares to weigh values with.
        if keys == 0 {
            out.fill(0.0);
            return;
        }
        let scale = 1.0 / (embedding as f32).sqrt();
        for first in (0..queries).step_by(self.rows()) {
            let rows = self.rows().min(queries - first);
            let scores = &mut scratch[..rows * keys];
            let query = Matrix::row_major(&query[first * embedding..], embedding);
            let key = Matrix::row_major(key, embedding).transposed();
            gemm(Extents { m: rows, k: embedding, n: keys }, query, key, scores, round_steps);
            for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
                for score in &mut *scores {
                    // The device holds the scale in fp16 as well.
                    *score = if round_steps { round_f16(*score * round_f16(scale)) } else { *score * scale };
                }
                mask(first + row, scores);
            }
            if round_steps {
                scores.iter_mut().for_each(|score| *score = round_f16(*score));
                softmax_f16_steps(scores, keys, 1);
            } else {
                softmax_f32(scores, keys, 1);
            }
            let out = &mut out[first * features..(first + rows) * features];
            let weights = Matrix::row_major(scores, keys);
            let value = Matrix::row_major(value, features);
            gemm(Extents { m: rows, k: keys, n: features }, weights, value, out, round_steps);
        }
    }
}
