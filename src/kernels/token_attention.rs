//! Attention of one token: queries that share keys and values, over the keys that a mask leaves to be seen.
//!
//! Keys and values are read once for all queries that share them, as they lie in memory.

use std::cell::RefCell;
use std::ops::Range;

use half::f16;

use super::column_attention::{padded, seen_in_row, share};
use super::convert::convert;
use super::gemm::Matrix;
use super::gemv::{self, DOT_ROWS};
use super::parallel::for_each_chunk;
use super::simd::{Grid, Isa, LANES, Load, Op, Simd, Store};
use crate::tensor::AlignedBuf;

/// Queries up to which products need no packing: more of them are better computed in other ways.
pub const FEW: usize = 4 * DOT_ROWS;

/// The queries of a token in groups, and the keys and values of each group.
#[derive(Clone, Copy)]
pub struct Groups<'a> {
    /// `[groups, queries, width]`.
    pub query: &'a [f16],
    /// As wide as queries.
    pub key: Rows<'a>,
    /// As wide as results.
    pub value: Rows<'a>,
    /// Rows that are added to the scores.
    pub mask: &'a [f16],
    /// Consecutive groups that share a row of the mask.
    pub sharing: usize,
    /// Keys and values of the token itself, which it always sees, unless they are among the others.
    pub own: Option<Own<'a>>,
    /// How many queries a group has.
    pub queries: usize,
    /// How many keys and values a group has.
    pub keys: usize,
}

/// Keys or values of all groups.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// `[groups, keys, width]` or `[groups, width, keys]`.
    pub data: &'a [f16],
    /// Elements of a key or value.
    pub width: usize,
    /// Whether the elements of a key lie side by side.
    pub by_position: bool,
}

impl<'a> Rows<'a> {
    /// `[keys, width]` of one group.
    fn of(&self, group: usize, keys: usize) -> Matrix<'a, f16> {
        let data = &self.data[group * keys * self.width..][..keys * self.width];
        match self.by_position {
            true => Matrix::row_major(data, self.width),
            false => Matrix::row_major(data, keys).transposed(),
        }
    }
}

/// A key and a value for each group.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Own<'a> {
    pub key: &'a [f16],
    pub value: &'a [f16],
}

impl Groups<'_> {
    /// `out = softmax(query x key^T + mask) x value`, `[groups, queries, width of values]`, rounded once.
    ///
    /// # Panics
    /// If anything has fewer elements than the sizes imply.
    pub fn attend(&self, out: &mut [f16]) {
        self.attend_with(Isa::best(), out);
    }

    fn attend_with(&self, isa: Isa, out: &mut [f16]) {
        let most = self.mask.chunks_exact(self.keys.max(1)).map(|mask| self.seen(mask).len()).max();
        let work = (self.query.len() + out.len()).saturating_mul(most.unwrap_or(0));
        let size = self.queries * self.value.width;
        if size == 0 {
            return;
        }
        for_each_chunk(out, size, work, |group, out| {
            let mask = row(self.mask, group / self.sharing, self.keys);
            let few = Few {
                isa,
                key: self.key.of(group, self.keys),
                value: self.value.of(group, self.keys),
                mask,
                seen: self.seen(mask),
                own: self.own.map(|own| Own {
                    key: row(own.key, group, self.key.width),
                    value: row(own.value, group, self.value.width),
                }),
            };
            let query = row(self.query, group, self.queries * self.key.width);
            let blocks = query.chunks(DOT_ROWS * self.key.width);
            for (query, out) in blocks.zip(out.chunks_mut(DOT_ROWS * self.value.width)) {
                few.attend((query, self.key.width), (out, self.value.width));
            }
        });
    }

    /// The keys that matter: if no other is seen, the token's own alone, or else all, which are equally hidden.
    fn seen(&self, mask: &[f16]) -> Range<usize> {
        seen_in_row(mask).unwrap_or(0..if self.own.is_some() { 0 } else { self.keys })
    }
}

fn row(data: &[f16], index: usize, length: usize) -> &[f16] {
    &data[index * length..][..length]
}

/// What a few queries see.
struct Few<'a> {
    isa: Isa,
    /// `[keys, width]`.
    key: Matrix<'a, f16>,
    value: Matrix<'a, f16>,
    mask: &'a [f16],
    seen: Range<usize>,
    own: Option<Own<'a>>,
}

thread_local! {
    static BUFFER: RefCell<AlignedBuf> = RefCell::default();
}

impl Few<'_> {
    /// Attention of up to [`DOT_ROWS`] queries; they and the results come with their widths.
    fn attend(&self, (query, width): (&[f16], usize), (out, features): (&mut [f16], usize)) {
        let Range { start, end } = self.seen;
        let (queries, keys) = (out.len() / features, end - start);
        let length = padded(keys + usize::from(self.own.is_some()));
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize((query.len() + queries * length + out.len()) * size_of::<f32>());
            let (wide, rest) = bytemuck::cast_slice_mut::<u8, f32>(buffer).split_at_mut(query.len());
            let (scores, sums) = rest.split_at_mut(queries * length);
            self.isa.run(Fetch {
                rows: [self.key, self.value],
                widths: [width, features],
                seen: self.seen.clone(),
            });
            convert(query, wide);
            let query = Matrix::row_major(&*wide, width);
            scores.fill(f32::NEG_INFINITY);
            let (seen, beside) = Grid::new(&mut *scores, length).split_columns(keys);
            product(self.isa, width, query, self.key.skip_rows(start).transposed(), seen);
            if let Some(own) = self.own {
                let score = beside.split_columns(1).0;
                product(self.isa, width, query, Matrix::row_major(own.key, width).transposed(), score);
            }
            self.isa.run(Shares { scores, length, mask: &self.mask[start..end] });
            let shares = Matrix::row_major(&*scores, length);
            let value = self.value.skip_rows(start);
            product(self.isa, keys, shares, value, Grid::new(&mut *sums, features));
            let own = self.own.map(|own| (&scores[keys..], own.value));
            self.isa.run(Results { sums, own, length, out, features });
        });
    }
}

/// Has keys and values that lie by channel brought near, all at once: of a channel only what is seen is read, which is too
/// short for a processor to see by itself where reading goes on.
struct Fetch<'a> {
    rows: [Matrix<'a, f16>; 2],
    widths: [usize; 2],
    seen: Range<usize>,
}

/// Keys beyond which a channel is read fast enough without help.
const LONG: usize = 512;
/// Halves that come from memory at once.
const LINE: usize = 32;

impl Op for Fetch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (rows, width) in self.rows.into_iter().zip(self.widths) {
            if rows.column_stride == 1 || self.seen.len() > LONG {
                continue;
            }
            for channel in 0..width {
                let seen = &rows.data[channel * rows.column_stride..][self.seen.clone()];
                seen.iter().step_by(LINE).chain(seen.last()).for_each(|half| s.prefetch(half));
            }
        }
    }
}

/// `out = a x b` of at most [`DOT_ROWS`] rows; the elements of rows of `a`, and of rows or columns of `b`, are
/// contiguous.
fn product(isa: Isa, k: usize, a: Matrix<'_>, b: Matrix<'_, f16>, out: Grid<'_>) {
    match b.row_stride {
        1 => gemv::dots(isa, k, a, b.transposed(), out, 1),
        _ => gemv::row_sums(isa, k, a, b, out, 1),
    }
}

/// Rows of scores, made shares in place.
struct Shares<'a> {
    scores: &'a mut [f32],
    /// Elements of a row: whole vectors.
    length: usize,
    /// Added to the first elements of every row.
    mask: &'a [f16],
}

impl Op for Shares<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for scores in self.scores.chunks_exact_mut(self.length.max(1)) {
            share(s, scores, self.mask);
        }
    }
}

/// Weighted sums of values, to which the token's own value is added before they are rounded.
struct Results<'a> {
    sums: &'a [f32],
    /// The first of the own value's shares, which are `length` apart, and the value.
    own: Option<(&'a [f32], &'a [f16])>,
    length: usize,
    out: &'a mut [f16],
    features: usize,
}

impl Op for Results<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.sums.chunks_exact(self.features).zip(self.out.chunks_exact_mut(self.features));
        for (i, (sums, out)) in rows.enumerate() {
            let (share, value) = match self.own {
                Some((shares, value)) => (shares[i * self.length], value),
                None => (0.0, &[][..]),
            };
            let share = s.splat(share);
            let mut value = value.chunks(LANES);
            for (sums, out) in sums.chunks(LANES).zip(out.chunks_mut(LANES)) {
                let value = f16::load_some(s, value.next().unwrap_or_default());
                f16::store_some(s, s.mul_add(share, value, f32::load_some(s, sums)), out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(count: usize, seed: usize) -> Vec<f16> {
        (0..count).map(|i| f16::from_f32(((i * 7919 + seed * 13) % 1009) as f32 / 504.0 - 1.0)).collect()
    }

    /// Everything in f64, key by key.
    fn plain(all: &Groups<'_>, len: usize) -> Vec<f64> {
        let (width, features) = (all.key.width, all.value.width);
        let number = |x: f16| f64::from(x.to_f32());
        let at = |rows: &Rows<'_>, group: usize, key: usize, i: usize| {
            let m = rows.of(group, all.keys);
            number(m.data[key * m.row_stride + i * m.column_stride])
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
        let all = Groups {
            query: &query,
            key: Rows { data: &key, width, by_position: by_position[0] },
            value: Rows { data: &value, width: features, by_position: by_position[1] },
            mask: &mask,
            sharing,
            own: has_own.then_some(Own { key: &own_key, value: &own_value }),
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
