//! GEMV and skinny GEMM: few rows times a matrix that is read from memory once, without packing.
//!
//! The *dot form* serves columns that are contiguous (`[n, k]` weights), the *axpy form* a row-major matrix. Packing costs a pass
//! over the matrix, which few rows do not repay: it starts to beyond 16 rows in the first form and 8 in the second.

use std::ops::Range;

use super::gemm::{Extents, Matrix};
use super::parallel;
use super::row_gemv::DenseGemv;
use super::simd::{Grid, Isa, LANES, Load, Op, Simd};

/// Rows up to which dot products are faster than packing.
pub(super) const DOT_ROWS: usize = 16;
/// Elements of a dot product at a time, 4 KiB of f32: several rows fit the first-level cache. A multiple of the lanes.
const DOT_DEPTH: usize = 1024;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;
/// Rows up to which sums of rows are faster than packing.
const AXPY_ROWS: usize = 8;
/// Rows whose sums are taken at a time.
const AXPY_GROUP: usize = 4;
/// Columns at a time: the sums of [`AXPY_GROUP`] rows are 8 KiB, which stay in the first-level cache.
const AXPY_COLUMNS: usize = 512;

/// Whether [`dot_gemv`] is the way to compute a product.
pub(super) fn uses_dots<T: Copy>(extents: Extents, a: Matrix<'_>, b: Matrix<'_, T>) -> bool {
    extents.m <= DOT_ROWS && a.column_stride == 1 && b.row_stride == 1
}

/// Whether [`axpy_gemv`] is the way to compute a product.
pub(super) fn uses_axpy<T: Copy>(extents: Extents, b: Matrix<'_, T>) -> bool {
    extents.m <= AXPY_ROWS && b.column_stride == 1
}

/// Dot form: each result is the dot product of a row of `a` and a column of `b`, both of `k` contiguous elements.
///
/// Lane `i` sums the products at `i`, `i + 8`, and so on; the lanes are then added by halves. For a single row of `a` there
/// are 64 lanes, so that columns of `b` can be read one after the other, as fast as memory gives them.
pub(super) fn dot_gemv<T: Load>(
    isa: Isa,
    k: usize,
    a: Matrix<'_>,
    b: Matrix<'_, T>,
    out: Grid<'_>,
    pieces: usize,
) {
    if out.rows() == 1 {
        return parallel::parts(out.into_row(), LANES, pieces, &|start, out| {
            isa.run(DenseGemv { x: &a.data[..k], w: b.skip_columns(start).transposed(), out });
        });
    }
    by_columns(b, out, LANES, pieces, &|b, out| isa.run(DotGemv { k, x: a, w: b.transposed(), out }));
}

/// Divides the columns of a product, in multiples of `unit`, among up to `pieces` threads.
fn by_columns<T: Load>(
    b: Matrix<'_, T>,
    out: Grid<'_>,
    unit: usize,
    pieces: usize,
    multiply: &(impl Fn(Matrix<'_, T>, Grid<'_>) + Sync),
) {
    let Some(middle) = parallel::half(out.columns(), unit, pieces) else { return multiply(b, out) };
    let (left, right) = out.split_columns(middle);
    parallel::join(
        || by_columns(b, left, unit, pieces / 2, multiply),
        || by_columns(b.skip_columns(middle), right, unit, pieces - pieces / 2, multiply),
    );
}

struct DotGemv<'a, T> {
    k: usize,
    x: Matrix<'a>,
    w: Matrix<'a, T>,
    out: Grid<'a>,
}

impl<T: Load> Op for DotGemv<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let n = self.out.columns();
        let mut j = 0;
        while j + 4 <= n {
            self.columns::<S, 4>(s, j);
            j += 4;
        }
        while j < n {
            self.columns::<S, 1>(s, j);
            j += 1;
        }
    }
}

impl<T: Load> DotGemv<'_, T> {
    /// All results of `W` rows of `w` from `j` on.
    #[inline(always)]
    fn columns<S: Simd, const W: usize>(&mut self, s: S, j: usize) {
        let m = self.out.rows();
        let mut sums = [[[0.0; LANES]; W]; DOT_ROWS];
        for start in (0..self.k).step_by(DOT_DEPTH) {
            let depth = start..self.k.min(start + DOT_DEPTH);
            let mut w: [&[T]; W] = [&[]; W];
            for (r, w) in w.iter_mut().enumerate() {
                *w = &self.w.data[(j + r) * self.w.row_stride..][depth.clone()];
            }
            let w = (w, (j + W) * self.w.row_stride + start);
            let mut i = 0;
            // 3 x 4 sums, 3 vectors of `x` and one of `w` are the 16 registers of AVX2.
            while i + 3 <= m {
                self.tile::<S, 3, W>(s, i, depth.clone(), w, &mut sums[i..]);
                i += 3;
            }
            while i < m {
                self.tile::<S, 1, W>(s, i, depth.clone(), w, &mut sums[i..]);
                i += 1;
            }
        }
        for (r, sums) in sums[..m].iter().enumerate() {
            for (out, sum) in self.out.row(r)[j..][..W].iter_mut().zip(sums) {
                *out = s.reduce_add(s.load(sum));
            }
        }
    }

    /// Adds the products of `X` rows of `x` from `i` on with rows of `w`, after which those at `next` have their turn.
    #[inline(always)]
    fn tile<S: Simd, const X: usize, const W: usize>(
        &self,
        s: S,
        i: usize,
        depth: Range<usize>,
        (w, next): ([&[T]; W], usize),
        sums: &mut [[[f32; LANES]; W]],
    ) {
        let mut x: [&[f32]; X] = [&[]; X];
        let mut totals = [[s.splat(0.0); W]; X];
        for r in 0..X {
            x[r] = &self.x.data[(i + r) * self.x.row_stride..][depth.clone()];
            for (total, sum) in totals[r].iter_mut().zip(&sums[r]) {
                *total = s.load(sum);
            }
        }
        // The first tile asks for the next columns; the tiles after it give memory the time.
        let ahead = if i == 0 { self.w.data.get(next..).unwrap_or_default() } else { &[] };
        let totals =
            dot_tile(s, depth.len(), x, w, Prefetch { rows: ahead, stride: self.w.row_stride }, totals);
        for (totals, sums) in totals.into_iter().zip(sums) {
            for (total, sum) in totals.into_iter().zip(sums) {
                s.store(total, sum);
            }
        }
    }
}

/// What is read next. A row is too short for a hardware prefetcher to see where reading goes on.
#[derive(Clone, Copy)]
struct Prefetch<'a, T> {
    rows: &'a [T],
    stride: usize,
}

impl<T> Prefetch<'_, T> {
    /// Prefetches a cache line of each of `W` rows.
    #[inline(always)]
    fn prefetch<S: Simd, const W: usize>(&self, s: S, column: usize) {
        for row in 0..W {
            if let Some(x) = self.rows.get(row * self.stride + column) {
                s.prefetch(x);
            }
        }
    }
}

/// Adds the products of each row of `x` with each of `w`, all of `k` elements, lane by lane.
#[inline(always)]
fn dot_tile<S: Simd, T: Load, const X: usize, const W: usize>(
    s: S,
    k: usize,
    x: [&[f32]; X],
    w: [&[T]; W],
    ahead: Prefetch<'_, T>,
    mut sums: [[S::V; W]; X],
) -> [[S::V; W]; X] {
    let whole = k / LANES;
    let mut x_lanes: [&[[f32; LANES]]; X] = [&[]; X];
    let mut w_lanes: [&[[T; LANES]]; W] = [&[]; W];
    for (lanes, x) in x_lanes.iter_mut().zip(x) {
        *lanes = &x.as_chunks().0[..whole];
    }
    for (lanes, w) in w_lanes.iter_mut().zip(w) {
        *lanes = &w.as_chunks().0[..whole];
    }
    for c in 0..whole {
        if (c * LANES * size_of::<T>()).is_multiple_of(CACHE_LINE) {
            ahead.prefetch::<S, W>(s, c * LANES);
        }
        let mut xs = [s.splat(0.0); X];
        for (v, x) in xs.iter_mut().zip(x_lanes) {
            *v = s.load(&x[c]);
        }
        for (j, w) in w_lanes.iter().enumerate() {
            let w = T::load(s, &w[c]);
            for (sums, &x) in sums.iter_mut().zip(&xs) {
                sums[j] = s.mul_add(x, w, sums[j]);
            }
        }
    }
    let rest = whole * LANES..k;
    if !rest.is_empty() {
        for (j, w) in w.iter().enumerate() {
            let w = T::load_some(s, &w[rest.clone()]);
            for (sums, x) in sums.iter_mut().zip(x) {
                sums[j] = s.mul_add(f32::load_some(s, &x[rest.clone()]), w, sums[j]);
            }
        }
    }
    sums
}

/// Axpy form: rows of `b`, whose elements are contiguous, weighted by each row of `a` and summed in order.
pub(super) fn axpy_gemv<T: Load>(
    isa: Isa,
    k: usize,
    a: Matrix<'_>,
    b: Matrix<'_, T>,
    out: Grid<'_>,
    pieces: usize,
) {
    by_columns(b, out, COLUMN_UNIT, pieces, &|b, out| isa.run(AxpyGemv { k, a, b, out }));
}

/// Columns below which dividing a row among threads shortens the runs read from memory too much.
const COLUMN_UNIT: usize = 64;

struct AxpyGemv<'a, T> {
    k: usize,
    a: Matrix<'a>,
    b: Matrix<'a, T>,
    out: Grid<'a>,
}

impl<T: Load> Op for AxpyGemv<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (m, n) = (self.out.rows(), self.out.columns());
        for start in (0..n).step_by(AXPY_COLUMNS) {
            let columns = start..n.min(start + AXPY_COLUMNS);
            for first in (0..m).step_by(AXPY_GROUP) {
                match m - first {
                    1 => self.block::<S, 1>(s, first, columns.clone()),
                    2 => self.block::<S, 2>(s, first, columns.clone()),
                    3 => self.block::<S, 3>(s, first, columns.clone()),
                    _ => self.block::<S, AXPY_GROUP>(s, first, columns.clone()),
                }
            }
        }
    }
}

type Sums<const R: usize> = [[[f32; LANES]; AXPY_COLUMNS / LANES]; R];

impl<T: Load> AxpyGemv<'_, T> {
    #[inline(always)]
    fn block<S: Simd, const R: usize>(&mut self, s: S, first: usize, columns: Range<usize>) {
        let mut sums: Sums<R> = [[[0.0; LANES]; AXPY_COLUMNS / LANES]; R];
        let a = self.a.skip_rows(first);
        let mut step = 0;
        // Four rows of `b` at a time: a sum is loaded and stored once for four multiply-adds.
        while step + 4 <= self.k {
            self.add::<S, R, 4>(s, a.skip_columns(step), step, columns.clone(), &mut sums);
            step += 4;
        }
        while step < self.k {
            self.add::<S, R, 1>(s, a.skip_columns(step), step, columns.clone(), &mut sums);
            step += 1;
        }
        for (r, sums) in sums.iter().enumerate() {
            self.out.row(first + r)[columns.clone()].copy_from_slice(&sums.as_flattened()[..columns.len()]);
        }
    }

    /// Adds `D` rows of `b` from `step` on, weighted by the first columns of `a`.
    #[inline(always)]
    fn add<S: Simd, const R: usize, const D: usize>(
        &self,
        s: S,
        a: Matrix<'_>,
        step: usize,
        columns: Range<usize>,
        sums: &mut Sums<R>,
    ) {
        let mut factors = [[s.splat(0.0); D]; R];
        for (r, factors) in factors.iter_mut().enumerate() {
            for (d, factor) in factors.iter_mut().enumerate() {
                *factor = s.splat(a.data[r * a.row_stride + d * a.column_stride]);
            }
        }
        let whole = columns.len() / LANES;
        let mut lines: [&[T]; D] = [&[]; D];
        let mut lanes: [&[[T; LANES]]; D] = [&[]; D];
        for (d, (line, lanes)) in lines.iter_mut().zip(&mut lanes).enumerate() {
            *line = &self.b.data[(step + d) * self.b.row_stride..][columns.clone()];
            *lanes = &line.as_chunks().0[..whole];
        }
        for c in 0..whole {
            let mut b = [s.splat(0.0); D];
            for (v, lanes) in b.iter_mut().zip(lanes) {
                *v = T::load(s, &lanes[c]);
            }
            for (sums, factors) in sums.iter_mut().zip(&factors) {
                let mut sum = s.load(&sums[c]);
                for (&factor, &b) in factors.iter().zip(&b) {
                    sum = s.mul_add(factor, b, sum);
                }
                s.store(sum, &mut sums[c]);
            }
        }
        let rest = whole * LANES..columns.len();
        if !rest.is_empty() {
            for (sums, factors) in sums.iter_mut().zip(&factors) {
                let mut sum = s.load(&sums[whole]);
                for (&factor, line) in factors.iter().zip(lines) {
                    sum = s.mul_add(factor, T::load_some(s, &line[rest.clone()]), sum);
                }
                s.store(sum, &mut sums[whole]);
            }
        }
    }
}
