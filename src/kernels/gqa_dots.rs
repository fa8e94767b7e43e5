//! The two products of decode attention for up to four queries that share keys and values (grouped-query attention).
//!
//! Each line of the KV cache is loaded and widened from fp16 once for all queries of its group, and sums stay in registers:
//! four queries by two wide vectors, beside the line itself and a broadcast.

use std::ops::Range;

use half::f16;

use super::simd::{LANES, Load, Simd, Store, WIDE};

/// Queries at most.
pub(super) const MAX_ROWS: usize = 4;
/// Lines, or wide vectors of a line, at a time: as many as leave registers for the sums of [`MAX_ROWS`] queries.
const TILE: usize = 2;
/// Columns of a line (1 KiB) beyond which it is not prefetched at once, but while it is read.
const LONG: usize = 512;
/// Columns by which that is ahead: four cache lines.
const AHEAD: usize = 128;
/// fp16 elements of a cache line.
const CACHE_LINE: usize = 32;

/// Some columns of lines that lie a stride apart.
pub(super) struct KvLines<'a> {
    pub(super) data: &'a [f16],
    pub(super) stride: usize,
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) columns: Range<usize>,
}

impl<'a> KvLines<'a> {
    /// A single line.
    pub(super) fn one(line: &'a [f16]) -> KvLines<'a> {
        KvLines { data: line, stride: 0, first: 0, count: 1, columns: 0..line.len() }
    }

    #[inline(always)]
    fn line(&self, i: usize) -> &'a [f16] {
        &self.data[(self.first + i) * self.stride..][self.columns.clone()]
    }

    fn is_long(&self) -> bool {
        self.columns.len() > LONG
    }

    /// Prefetches all of it, unless lines are long: they are read in pieces that are too short for a hardware prefetcher.
    #[inline(always)]
    pub(super) fn fetch<S: Simd>(&self, s: S) {
        if self.columns.is_empty() || self.is_long() {
            return;
        }
        for i in 0..self.count {
            let line = self.line(i);
            let mut at = 0;
            while at < line.len() {
                s.prefetch(&line[at]);
                at += CACHE_LINE;
            }
            // A line need not begin on a cache line, so that it may reach into one more.
            s.prefetch(&line[line.len() - 1]);
        }
    }
}

/// Dot products of each row of `x` with each line; those of a row are `stride` after those of the row before.
#[inline(always)]
pub(super) fn dots<S: Simd, const Q: usize>(
    s: S,
    x: [&[f32]; Q],
    lines: &KvLines<'_>,
    out: &mut [f32],
    stride: usize,
) {
    let mut i = 0;
    while i + LANES <= lines.count {
        // Eight lines make a vector of results by one transposition instead of eight horizontal sums.
        let mut lanes = [[s.splat(0.0); LANES]; Q];
        let mut j = 0;
        while j < LANES {
            let sums = dot_lines(s, x, [lines.line(i + j), lines.line(i + j + 1)]);
            for (lanes, sums) in lanes.iter_mut().zip(sums) {
                lanes[j] = s.fold_wide(sums[0]);
                lanes[j + 1] = s.fold_wide(sums[1]);
            }
            j += TILE;
        }
        for (q, lanes) in lanes.into_iter().enumerate() {
            f32::store_some(s, s.reduce_add_each(lanes), &mut out[q * stride + i..][..LANES]);
        }
        i += LANES;
    }
    while i < lines.count {
        for (q, [sum]) in dot_lines(s, x, [lines.line(i)]).into_iter().enumerate() {
            out[q * stride + i] = s.reduce_add(s.fold_wide(sum));
        }
        i += 1;
    }
}

/// The products of each row with each line, summed lane by lane.
#[inline(always)]
fn dot_lines<S: Simd, const Q: usize, const L: usize>(
    s: S,
    x: [&[f32]; Q],
    lines: [&[f16]; L],
) -> [[S::W; L]; Q] {
    let mut sums = [[s.splat_wide(0.0); L]; Q];
    let length = lines[0].len();
    let whole = length / WIDE;
    let mut x_wide: [&[[f32; WIDE]]; Q] = [&[]; Q];
    let mut line_wide: [&[[f16; WIDE]]; L] = [&[]; L];
    for (wide, x) in x_wide.iter_mut().zip(x) {
        *wide = &x.as_chunks().0[..whole];
    }
    for (wide, line) in line_wide.iter_mut().zip(lines) {
        *wide = &line.as_chunks().0[..whole];
    }
    for c in 0..whole {
        let mut w = [s.splat_wide(0.0); L];
        for (w, line) in w.iter_mut().zip(line_wide) {
            *w = f16::load_wide(s, &line[c]);
        }
        for (sums, x) in sums.iter_mut().zip(x_wide) {
            let x = s.load_wide(&x[c]);
            for (sum, &w) in sums.iter_mut().zip(&w) {
                *sum = s.mul_add_wide(x, w, *sum);
            }
        }
    }
    if whole * WIDE < length {
        for (sums, x) in sums.iter_mut().zip(x) {
            let x = f32::load_some_wide(s, &x[whole * WIDE..length]);
            for (sum, line) in sums.iter_mut().zip(lines) {
                *sum = s.mul_add_wide(x, f16::load_some_wide(s, &line[whole * WIDE..]), *sum);
            }
        }
    }
    sums
}

/// Sums of lines, weighted by each row of `x`; those of a row are `stride` after those of the row before.
#[inline(always)]
pub(super) fn weighted_sums<S: Simd, const Q: usize>(
    s: S,
    x: [&[f32]; Q],
    lines: &KvLines<'_>,
    out: &mut [f32],
    stride: usize,
) {
    let length = lines.columns.len();
    let mut start = 0;
    while start < length {
        let end = length.min(start + TILE * WIDE);
        let sums = match end - start == TILE * WIDE {
            true => weighted_tile::<S, Q, true>(s, x, lines, start),
            false => weighted_tile::<S, Q, false>(s, x, lines, start),
        };
        for (q, sums) in sums.into_iter().enumerate() {
            let mut lanes = [[0.0; WIDE]; TILE];
            for (lanes, sum) in lanes.iter_mut().zip(sums) {
                s.store_wide(sum, lanes);
            }
            out[q * stride + start..q * stride + end].copy_from_slice(&lanes.as_flattened()[..end - start]);
        }
        start = end;
    }
}

/// The sums of one tile, which may be longer than what is left of the lines unless it is `WHOLE`.
#[inline(always)]
fn weighted_tile<S: Simd, const Q: usize, const WHOLE: bool>(
    s: S,
    x: [&[f32]; Q],
    lines: &KvLines<'_>,
    start: usize,
) -> [[S::W; TILE]; Q] {
    let mut sums = [[s.splat_wide(0.0); TILE]; Q];
    for i in 0..lines.count {
        let line = &lines.line(i)[start..];
        if lines.is_long() && line.len() > AHEAD {
            s.prefetch(&line[AHEAD]);
        }
        let w = if WHOLE {
            let (wide, _) = line[..TILE * WIDE].as_chunks();
            [f16::load_wide(s, &wide[0]), f16::load_wide(s, &wide[1])]
        } else {
            let (first, second) = line.split_at(WIDE.min(line.len()));
            [f16::load_some_wide(s, first), f16::load_some_wide(s, second)]
        };
        for (sums, x) in sums.iter_mut().zip(x) {
            let x = s.splat_wide(x[i]);
            for (sum, &w) in sums.iter_mut().zip(&w) {
                *sum = s.mul_add_wide(x, w, *sum);
            }
        }
    }
    sums
}
