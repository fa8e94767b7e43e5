//! Prefill attention of one head: many queries, in blocks whose scores stay in the second-level cache.
//!
//! ```text
//!              keys            Of each block of queries: GEMM of the scores, mask and softmax in place, GEMM with the values.
//! queries  [### . . . ]        Only the range of keys that some query of the block sees (#) is computed: with a causal mask
//!          [##### . . ]        half of all.
//!          [######### ]
//! ```
//!
//! As in FlashAttention (Dao et al. 2022) no matrix of all scores is written to memory. Keys are not tiled: a block has whole rows
//! of scores, 128 x 2048 x 4 bytes = 1 MiB, so that softmax subtracts the true maximum and needs no rescaling (online softmax,
//! Milakov & Gimelshein 2018), and sums run in the same order whatever the machine. Queries and results are columns, which is
//! how an exported graph has them.

use std::cell::RefCell;
use std::ops::Range;

use half::f16;
use smallvec::SmallVec;

use super::gemm::{Matrix, gemm_on_this_thread};
use super::math::exp_of_distance;
use super::simd::{Grid, Isa, LANES, Load, Op, Simd, Store};
use crate::tensor::AlignedBuf;

/// Queries of a block; more if there would be more blocks than this, whose ranges are kept without allocation.
const QUERIES: usize = 128;
const BLOCKS: usize = 32;

/// A mask from this number on makes a probability zero: exp(-1e4) is 0.
const HIDDEN: f16 = f16::from_f32_const(-1e4);

/// The keys that are visible to each block of queries.
pub struct VisibleKeys {
    block: usize,
    ranges: SmallVec<[Range<usize>; BLOCKS]>,
}

impl VisibleKeys {
    /// Reads a mask of `queries` rows of `keys` elements.
    ///
    /// # Panics
    /// If the mask has fewer elements.
    pub fn of_mask(mask: &[f16], queries: usize, keys: usize) -> VisibleKeys {
        let block = queries.div_ceil(BLOCKS).max(QUERIES);
        let ranges = (0..queries).step_by(block).map(|first| {
            let rows = mask[first * keys..(first + block).min(queries) * keys].chunks_exact(keys.max(1));
            let rows = rows.map(|row| visible_range(row).unwrap_or(0..keys));
            rows.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..keys)
        });
        VisibleKeys { block, ranges: ranges.collect() }
    }
}

/// From about the first to about the last key that is visible, if any is.
pub(super) fn visible_range(mask: &[f16]) -> Option<Range<usize>> {
    // 128 bytes of mask at a time: about where visible keys begin is enough, since the mask is added all the same.
    const PIECE: usize = 64;
    // No comparison of floats, which the compiler would take one at a time; a NaN is larger than HIDDEN here too.
    let is_visible = |mask: &f16| {
        mask.to_bits().wrapping_sub(HIDDEN.to_bits()) > f16::NEG_INFINITY.to_bits() - HIDDEN.to_bits()
    };
    let any = |piece: &[f16]| piece.iter().fold(false, |any, mask| any | is_visible(mask));
    let first = mask.chunks(PIECE).position(any)?;
    let hidden = mask.rchunks(PIECE).take_while(|piece| !any(piece)).map(<[f16]>::len).sum::<usize>();
    Some(first * PIECE..mask.len() - hidden)
}

/// One attention head with all its queries.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// Queries, `[queries, width]`.
    pub query: Matrix<'a, f16>,
    /// Keys, `[width, keys]`.
    pub key: Matrix<'a, f16>,
    /// Values, `[features, keys]`.
    pub value: Matrix<'a, f16>,
    /// `[queries, keys]`, added to the scores.
    pub mask: &'a [f16],
    /// Elements of a query or key.
    pub width: usize,
    /// How many queries there are.
    pub queries: usize,
    /// How many keys and values there are.
    pub keys: usize,
}

thread_local! {
    static MEMORY: RefCell<AlignedBuf> = RefCell::default();
}

impl Head<'_> {
    /// `out = value x softmax(query x key + mask)^T`, `[features, queries]`, on this thread.
    ///
    /// # Panics
    /// If a matrix or the mask has fewer elements than the extents imply.
    pub fn attend(&self, visible: &VisibleKeys, out: &mut [f16]) {
        MEMORY.with_borrow_mut(|memory| {
            let mut rest = Grid::new(out, self.queries);
            for (i, keys) in visible.ranges.iter().enumerate() {
                let first = i * visible.block;
                let count = visible.block.min(self.queries - first);
                let (columns, beside) = if count < rest.columns() {
                    let (columns, beside) = rest.split_columns(count);
                    (columns, Some(beside))
                } else {
                    (rest, None)
                };
                let (scores_len, sums_len) = (count * padded(keys.len()), count * columns.rows());
                memory.resize((scores_len + sums_len) * size_of::<f32>());
                let memory = bytemuck::cast_slice_mut(memory).split_at_mut(scores_len);
                self.block(first, keys.clone(), memory, columns);
                let Some(beside) = beside else { return };
                rest = beside;
            }
        });
    }

    /// Sums have a row for each query, so that probabilities need no transposition; it is done where sums are stored.
    fn block(
        &self,
        first: usize,
        keys: Range<usize>,
        (scores, sums): (&mut [f32], &mut [f32]),
        out: Grid<'_, f16>,
    ) {
        let (isa, length, row) = (Isa::best(), keys.len(), padded(keys.len()));
        let mut whole = Grid::new(&mut *scores, row);
        if length < row {
            (0..whole.rows()).for_each(|i| whole.row(i)[length..].fill(f32::NEG_INFINITY));
            whole = whole.split_columns(length).0;
        }
        let key = self.key.skip_columns(keys.start);
        gemm_on_this_thread(isa, self.width, self.query.skip_rows(first), key, whole);
        let mask = &self.mask[first * self.keys..];
        isa.run(MaskedSoftmax { scores, row, mask, keys: keys.clone(), mask_row: self.keys });
        let (probabilities, features) = (Matrix::row_major(&*scores, row), out.rows());
        let value = self.value.skip_columns(keys.start).transposed();
        gemm_on_this_thread(isa, length, probabilities, value, Grid::new(&mut *sums, features));
        isa.run(StoreTransposed { sums, out });
    }
}

/// Stores rows of sums as columns.
struct StoreTransposed<'a, 'g> {
    sums: &'a [f32],
    out: Grid<'g, f16>,
}

impl Op for StoreTransposed<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (features, queries) = (self.out.rows(), self.out.columns());
        for first in (0..queries).step_by(LANES) {
            let here = first..queries.min(first + LANES);
            for feature in (0..features).step_by(LANES) {
                let mut rows = [s.splat(0.0); LANES];
                for (row, query) in rows.iter_mut().zip(here.clone()) {
                    *row = f32::load_some(s, &self.sums[query * features + feature..]);
                }
                for (column, feature) in s.transpose(rows).into_iter().zip(feature..features) {
                    f16::store_some(s, column, &mut self.out.row(feature)[here.clone()]);
                }
            }
        }
    }
}

/// A number of elements that is whole vectors.
pub(super) fn padded(length: usize) -> usize {
    length.next_multiple_of(LANES)
}

/// Mask and softmax of rows of scores, in place.
struct MaskedSoftmax<'a> {
    scores: &'a mut [f32],
    /// Elements of a row: whole vectors, of which those without a key are negative infinity.
    row: usize,
    mask: &'a [f16],
    keys: Range<usize>,
    /// Elements of a row of the mask.
    mask_row: usize,
}

impl Op for MaskedSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let masks = self.mask.chunks_exact(self.mask_row).map(|row| &row[self.keys.clone()]);
        for (scores, mask) in self.scores.chunks_exact_mut(self.row).zip(masks) {
            masked_softmax(s, scores, mask);
        }
    }
}

/// Softmax in place of scores, which are whole vectors, after a mask is added to the first of them.
#[inline(always)]
pub(super) fn masked_softmax<S: Simd>(s: S, scores: &mut [f32], mask: &[f16]) {
    let scores = scores.as_chunks_mut().0;
    let mut masks = mask.chunks(LANES);
    let mut most = s.splat(f32::NEG_INFINITY);
    for score in &mut *scores {
        let masked = s.add(s.load(score), f16::load_some(s, masks.next().unwrap_or_default()));
        // The order of the operands keeps a NaN out of the maximum; it comes back with its own exponential.
        most = s.max(masked, most);
        s.store(masked, score);
    }
    let most = s.splat(s.reduce_max(most));
    let mut sum = s.splat(0.0);
    for score in &mut *scores {
        let probability = exp_of_distance(s, s.sub(s.load(score), most));
        sum = s.add(sum, probability);
        s.store(probability, score);
    }
    // One division per row instead of one per element; the second rounding is far below fp16.
    let part = s.splat(1.0 / s.reduce_add(sum));
    for score in scores {
        s.store(s.mul(s.load(score), part), score);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(i: usize) -> f32 {
        ((i * 7919 + 13) % 1009) as f32 / 504.0 - 1.0
    }

    fn halves(count: usize, seed: usize) -> Vec<f16> {
        (0..count).map(|i| f16::from_f32(value(i + seed))).collect()
    }

    /// Everything in f64, key by key.
    fn plain(head: &Head<'_>, features: usize) -> Vec<f64> {
        let at = |m: Matrix<'_, f16>, row: usize, column: usize| {
            f64::from(m.data[row * m.row_stride + column * m.column_stride].to_f32())
        };
        let mut out = vec![0.0; features * head.queries];
        for q in 0..head.queries {
            let score = |k: usize| -> f64 {
                let sum: f64 = (0..head.width).map(|w| at(head.query, q, w) * at(head.key, w, k)).sum();
                sum + f64::from(head.mask[q * head.keys + k].to_f32())
            };
            let scores: Vec<f64> = (0..head.keys).map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            for f in 0..features {
                let weighted = (0..head.keys).map(|k| (scores[k] - most).exp() * at(head.value, f, k));
                out[f * head.queries + q] = weighted.sum::<f64>() / total;
            }
        }
        out
    }

    fn assert_attends(queries: usize, keys: usize, mask: impl Fn(usize, usize) -> f32) {
        let (width, features) = (16, 8);
        let (query, key, values) =
            (halves(queries * width, 1), halves(width * keys, 2), halves(keys * features, 3));
        let mask: Vec<f16> = (0..queries * keys).map(|i| f16::from_f32(mask(i / keys, i % keys))).collect();
        let head = Head {
            query: Matrix::row_major(&query, queries).transposed(),
            key: Matrix::row_major(&key, keys),
            value: Matrix::row_major(&values, features).transposed(),
            mask: &mask,
            width,
            queries,
            keys,
        };
        let mut out = vec![f16::NAN; features * queries];
        head.attend(&VisibleKeys::of_mask(&mask, queries, keys), &mut out);
        for (i, (found, expected)) in out.iter().zip(plain(&head, features)).enumerate() {
            assert!((f64::from(found.to_f32()) - expected).abs() < 2e-3, "{i}: {found} is not {expected}");
        }
    }

    #[test]
    fn masks_of_every_kind_give_what_the_definition_gives() {
        for hides in [-1e4, f32::NEG_INFINITY, -65504.0] {
            assert_attends(300, 300, |q, k| if k > q { hides } else { 0.0 });
            assert_attends(130, 700, |q, k| if k > q + 570 || k + 100 < q + 570 { hides } else { 0.25 });
        }
        assert_attends(1, 5, |_, _| 0.0);
        assert_attends(140, 77, |q, k| if k > q { -1e4 } else { 0.0 });
        assert_attends(129, 64, |q, k| ((q * 3 + k) % 7) as f32 - 3.0);
    }

    #[test]
    fn queries_that_see_nothing_share_alike() {
        assert_attends(200, 90, |q, _| if q < 150 { 0.0 } else { -1e4 });
    }

    #[test]
    fn ranges_hold_every_key_that_is_seen_and_few_others() {
        let (queries, keys) = (256, 512);
        let mask: Vec<f16> = (0..queries * keys)
            .map(|i| f16::from_f32(if i % keys > i / keys { -1e4 } else { 0.0 }))
            .collect();
        let visible = VisibleKeys::of_mask(&mask, queries, keys);
        assert_eq!(visible.ranges[..], [0..128, 0..256]);
        assert_eq!(visible_range(&[f16::NAN]), Some(0..1));
        let mut row = vec![f16::NEG_INFINITY; 200];
        assert_eq!(visible_range(&row), None);
        row[70] = f16::from_f32(-9992.0);
        assert_eq!(visible_range(&row), Some(64..72));
        assert_eq!(visible_range(&[]), None);
    }
}
