//! Decode attention: one token, with queries in groups that share keys and values (GQA, Ainslie et al. 2023).
//!
//! `softmax(q K^T + mask) V` over the keys that the mask leaves visible. The scores of one token are few, so that softmax takes
//! them as a whole; online softmax (Milakov & Gimelshein 2018) would save no memory traffic. Keys and values are read once for
//! all queries of a group, in whichever order the KV cache has them:
//!
//! ```text
//!                        scores = q K^T           out = p V
//! by position [keys, w]  dot with each line       weighted sum of lines
//! by channel  [w, keys]  weighted sum of lines    dot with each line
//! ```

use std::cell::RefCell;
use std::ops::Range;

use half::f16;

use super::gqa_dots::{KvLines, MAX_ROWS, dots, weighted_sums};
use super::parallel;
use super::prefill_attention::{masked_softmax, padded, visible_range};
use super::simd::{Isa, LANES, Load, Op, Simd, Store};
use crate::tensor::AlignedBuf;

/// Queries of a group up to which this is faster than GEMM with packing.
pub const MAX_QUERIES: usize = 16 * MAX_ROWS;

/// The queries of a token in groups, and the keys and values of each group.
#[derive(Clone, Copy)]
pub struct DecodeAttention<'a> {
    /// Queries, `[groups, queries, width]`.
    pub query: &'a [f16],
    /// As wide as queries.
    pub key: KvRows<'a>,
    /// As wide as results.
    pub value: KvRows<'a>,
    /// Rows that are added to the scores.
    pub mask: &'a [f16],
    /// Consecutive groups that share a row of the mask.
    pub sharing: usize,
    /// Keys and values of the token itself, which it always sees, unless they are among the others.
    pub own: Option<OwnKv<'a>>,
    /// How many queries a group has.
    pub queries: usize,
    /// How many keys and values a group has.
    pub keys: usize,
}

/// Keys or values of all groups.
#[derive(Clone, Copy)]
pub struct KvRows<'a> {
    /// `[groups, keys, width]` or `[groups, width, keys]`.
    pub data: &'a [f16],
    /// Elements of a key or value.
    pub width: usize,
    /// Whether the elements of a key lie side by side.
    pub by_position: bool,
}

impl<'a> KvRows<'a> {
    /// Those of one group that are visible: a line for each key, or for each channel.
    fn visible(&self, group: usize, keys: usize, visible: &Range<usize>) -> KvLines<'a> {
        let data = &self.data[group * keys * self.width..][..keys * self.width];
        match self.by_position {
            true => KvLines {
                data,
                stride: self.width,
                first: visible.start,
                count: visible.len(),
                columns: 0..self.width,
            },
            false => KvLines { data, stride: keys, first: 0, count: self.width, columns: visible.clone() },
        }
    }
}

/// A key and a value for each group.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct OwnKv<'a> {
    pub key: &'a [f16],
    pub value: &'a [f16],
}

impl DecodeAttention<'_> {
    /// `out = softmax(query x key^T + mask) x value`, `[groups, queries, width of values]`, rounded once.
    ///
    /// # Panics
    /// If anything has fewer elements than the sizes imply.
    pub fn attend(&self, out: &mut [f16]) {
        self.attend_with(Isa::best(), out);
    }

    /// Queries are divided evenly among threads, wherever a group ends.
    fn attend_with(&self, isa: Isa, out: &mut [f16]) {
        let features = self.value.width;
        if self.queries * features == 0 {
            return;
        }
        let most = self.mask.chunks_exact(self.keys.max(1)).map(|mask| self.visible(mask).len()).max();
        // Multiply-adds of both products with the keys of the row that sees most.
        let work = (self.query.len() + out.len()).saturating_mul(most.unwrap_or(0));
        parallel::even_parts(out, features, parallel::pieces(work), &|start, mut out| {
            let mut query = start / features;
            while !out.is_empty() {
                let left = (self.queries - query % self.queries).min(MAX_ROWS).min(out.len() / features);
                let (here, rest) = out.split_at_mut(left * features);
                self.query_block(query, left).attend(isa, here);
                query += left;
                out = rest;
            }
        });
    }

    /// Some queries of one group.
    fn query_block(&self, first: usize, count: usize) -> QueryBlock<'_> {
        let group = first / self.queries;
        let mask = row(self.mask, group / self.sharing, self.keys);
        let visible = self.visible(mask);
        QueryBlock {
            query: &self.query[first * self.key.width..][..count * self.key.width],
            key: self.key.visible(group, self.keys, &visible),
            key_by_position: self.key.by_position,
            value: self.value.visible(group, self.keys, &visible),
            value_by_position: self.value.by_position,
            own: self.own.map(|own| OwnKv {
                key: row(own.key, group, self.key.width),
                value: row(own.value, group, self.value.width),
            }),
            mask: &mask[visible],
        }
    }

    /// The keys that matter: if no other is visible, the token's own alone, or else all, which are equally hidden.
    fn visible(&self, mask: &[f16]) -> Range<usize> {
        visible_range(mask).unwrap_or(0..if self.own.is_some() { 0 } else { self.keys })
    }
}

fn row(data: &[f16], index: usize, length: usize) -> &[f16] {
    &data[index * length..][..length]
}

/// Up to [`MAX_ROWS`] queries of a group and the keys and values that are visible to them.
struct QueryBlock<'a> {
    query: &'a [f16],
    key: KvLines<'a>,
    key_by_position: bool,
    value: KvLines<'a>,
    value_by_position: bool,
    own: Option<OwnKv<'a>>,
    /// Added to the scores of all.
    mask: &'a [f16],
}

thread_local! {
    static BUFFER: RefCell<AlignedBuf> = RefCell::default();
}

impl QueryBlock<'_> {
    fn attend(&self, isa: Isa, out: &mut [f16]) {
        let width = if self.key_by_position { self.key.columns.len() } else { self.key.count };
        let features = if self.value_by_position { self.value.columns.len() } else { self.value.count };
        let queries = out.len() / features;
        let length = padded(self.mask.len() + usize::from(self.own.is_some()));
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize((self.query.len() + queries * length + out.len()) * size_of::<f32>());
            let (query, rest) = bytemuck::cast_slice_mut::<u8, f32>(buffer).split_at_mut(self.query.len());
            let (scores, sums) = rest.split_at_mut(queries * length);
            let attend = BlockMemory { block: self, query, scores, sums, out, width, features, length };
            match queries {
                1 => isa.run(AttendBlock::<1>(attend)),
                2 => isa.run(AttendBlock::<2>(attend)),
                3 => isa.run(AttendBlock::<3>(attend)),
                _ => isa.run(AttendBlock::<MAX_ROWS>(attend)),
            }
        });
    }
}

/// A block with working memory in f32.
struct BlockMemory<'a> {
    block: &'a QueryBlock<'a>,
    query: &'a mut [f32],
    /// A row for each query, in the end probabilities.
    scores: &'a mut [f32],
    sums: &'a mut [f32],
    out: &'a mut [f16],
    /// Elements of a query, of a result and of a row of scores.
    width: usize,
    features: usize,
    length: usize,
}

/// Attention of `Q` queries.
struct AttendBlock<'a, const Q: usize>(BlockMemory<'a>);

impl<const Q: usize> Op for AttendBlock<'_, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let BlockMemory { block, query, scores, sums, out, width, features, length } = self.0;
        let keys = block.mask.len();
        // The hardware prefetches lines by position, which follow each other. Those by channel lie a context apart.
        if !block.key_by_position {
            block.key.fetch(s);
        }
        if !block.value_by_position {
            block.value.fetch(s);
        }
        for (wide, halves) in query.chunks_mut(LANES).zip(block.query.chunks(LANES)) {
            f32::store_some(s, f16::load_some(s, halves), wide);
        }
        let query = rows::<Q>(query, width);
        match block.key_by_position {
            true => dots(s, query, &block.key, scores, length),
            false => weighted_sums(s, query, &block.key, scores, length),
        }
        if let Some(own) = block.own {
            dots(s, query, &KvLines::one(own.key), &mut scores[keys..], length);
        }
        for scores in scores.chunks_exact_mut(length.max(1)) {
            // Lanes beyond the last key: exp(-inf) adds nothing to the sum.
            scores[keys + usize::from(block.own.is_some())..].fill(f32::NEG_INFINITY);
            masked_softmax(s, scores, block.mask);
        }
        let probabilities = rows::<Q>(scores, length);
        match block.value_by_position {
            true => weighted_sums(s, probabilities, &block.value, sums, features),
            false => dots(s, probabilities, &block.value, sums, features),
        }
        for (i, (sums, out)) in sums.chunks(features).zip(out.chunks_mut(features)).enumerate() {
            let own = block.own.map(|own| (probabilities[i][keys], own.value));
            finish(s, sums, own, out);
        }
    }
}

/// `Q` rows of so many elements.
#[inline(always)]
fn rows<const Q: usize>(data: &[f32], length: usize) -> [&[f32]; Q] {
    let mut rows: [&[f32]; Q] = [&[]; Q];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = &data[i * length..][..length];
    }
    rows
}

/// Adds the token's own value, by its probability, and rounds.
#[inline(always)]
fn finish<S: Simd>(s: S, sums: &[f32], own: Option<(f32, &[f16])>, out: &mut [f16]) {
    let (probability, value) = own.unwrap_or((0.0, &[]));
    let probability = s.splat(probability);
    let mut value = value.chunks(LANES);
    for (sums, out) in sums.chunks(LANES).zip(out.chunks_mut(LANES)) {
        let value = f16::load_some(s, value.next().unwrap_or_default());
        f16::store_some(s, s.mul_add(probability, value, f32::load_some(s, sums)), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(count: usize, seed: usize) -> Vec<f16> {
        (0..count).map(|i| f16::from_f32(((i * 7919 + seed * 13) % 1009) as f32 / 504.0 - 1.0)).collect()
    }

    /// Everything in f64, key by key.
    fn plain(all: &DecodeAttention<'_>, len: usize) -> Vec<f64> {
        let (width, features) = (all.key.width, all.value.width);
        let number = |x: f16| f64::from(x.to_f32());
        let at = |rows: &KvRows<'_>, group: usize, key: usize, i: usize| {
            let data = &rows.data[group * all.keys * rows.width..];
            number(if rows.by_position { data[key * rows.width + i] } else { data[i * all.keys + key] })
        };
        let result = |at_out: usize| {
            let (query, feature) = (at_out / features, at_out % features);
            let group = query / all.queries;
            let dot = |key: &dyn Fn(usize) -> f64| -> f64 {
                (0..width).map(|i| number(all.query[query * width + i]) * key(i)).sum()
            };
            let mask = row(all.mask, group / all.sharing, all.keys);
            let mut scored: Vec<(f64, f64)> = (0..all.keys)
                .map(|k| {
                    (dot(&|i| at(&all.key, group, k, i)) + number(mask[k]), at(&all.value, group, k, feature))
                })
                .collect();
            if let Some(own) = all.own {
                let score = dot(&|i| number(own.key[group * width + i]));
                scored.push((score, number(own.value[group * features + feature])));
            }
            let most = scored.iter().map(|scored| scored.0).fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scored.iter().map(|scored| (scored.0 - most).exp()).sum();
            scored.iter().map(|(score, value)| (score - most).exp() * value).sum::<f64>() / total
        };
        (0..len).map(result).collect()
    }

    /// Groups, those that share a mask, queries, keys, width of keys and of values.
    const SIZES: [[usize; 6]; 7] = [
        [3, 3, 3, 512, 64, 64],
        [4, 2, 1, 77, 16, 8],
        [2, 1, 5, 9, 7, 13],
        [1, 1, 19, 130, 24, 24],
        [1, 1, 2, 1, 3, 5],
        [2, 2, 4, 700, 1, 1],
        [1, 1, 33, 3, 8, 8],
    ];

    fn assert_attends(sizes: [usize; 6], by_position: [bool; 2], has_own: bool, mask: impl Fn(usize) -> f32) {
        let [groups, sharing, queries, keys, width, features] = sizes;
        let query = halves(groups * queries * width, 1);
        let (key, value) = (halves(groups * keys * width, 2), halves(groups * keys * features, 3));
        let (own_key, own_value) = (halves(groups * width, 4), halves(groups * features, 5));
        let mask: Vec<f16> = (0..groups / sharing * keys).map(|i| f16::from_f32(mask(i % keys))).collect();
        let all = DecodeAttention {
            query: &query,
            key: KvRows { data: &key, width, by_position: by_position[0] },
            value: KvRows { data: &value, width: features, by_position: by_position[1] },
            mask: &mask,
            sharing,
            own: has_own.then_some(OwnKv { key: &own_key, value: &own_value }),
            queries,
            keys,
        };
        let mut first = vec![f16::NAN; groups * queries * features];
        all.attend(&mut first);
        for (found, expected) in first.iter().zip(plain(&all, first.len())) {
            let found = f64::from(found.to_f32());
            assert!((found - expected).abs() <= 6e-4, "{sizes:?} {by_position:?}: {found} is not {expected}");
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for isa in Isa::all() {
            let mut again = vec![f16::NAN; first.len()];
            pool.install(|| all.attend_with(isa, &mut again));
            assert_eq!(again, first, "{sizes:?} with {isa:?} and three threads");
        }
    }

    #[test]
    fn masks_of_every_kind_give_what_the_definition_gives() {
        for sizes in SIZES {
            let keys = sizes[3];
            for by_position in [[false; 2], [true; 2], [true, false], [false, true]] {
                for has_own in [false, true] {
                    assert_attends(sizes, by_position, has_own, |_| 0.0);
                    assert_attends(sizes, by_position, has_own, |_| -1e4);
                    assert_attends(sizes, by_position, has_own, |k| if k > keys / 3 { -1e4 } else { 0.0 });
                    assert_attends(
                        sizes,
                        by_position,
                        has_own,
                        |k| if k * 2 < keys { -65504.0 } else { 0.5 },
                    );
                    assert_attends(sizes, by_position, has_own, |k| (k % 7) as f32 - 3.0);
                }
            }
        }
    }
}
