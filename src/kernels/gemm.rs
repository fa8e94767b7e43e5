//! Matrix multiplication.
//!
//! Three ways, chosen by extents and strides alone: few rows times columns that lie in memory one after the
//! other are dot products (`gemv`); few rows times a row-major matrix are sums of its rows; all else
//! is cut into blocks that fit the caches, packed, and computed in register tiles. In the last two every
//! element is the fused sum of its products in index order, whatever the blocking and the number of threads.

use std::cell::RefCell;
use std::ops::Range;

use super::gemv;
use super::pack::pack;
use super::parallel;
use super::simd::{Grid, Isa, LANES, Load, Op, Simd};
use crate::tensor::AlignedBuf;

/// Rows of a register tile.
const ROWS: usize = 6;
/// Columns of a register tile.
const COLUMNS: usize = 2 * LANES;
/// Steps along the shared extent whose panels fit the first-level cache.
const DEPTH_BLOCK: usize = 256;
/// Rows of the left matrix whose packed block fits the second-level cache.
const ROW_BLOCK: usize = 20 * ROWS;
/// Columns of the right matrix that are packed at a time.
const COLUMN_BLOCK: usize = 64 * COLUMNS;

/// The extents of a product `[m, k] x [k, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual names")]
pub struct Extents {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

/// A strided matrix.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T = f32> {
    /// Elements, starting with the first of the matrix.
    pub data: &'a [T],
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// A row-major matrix with `columns` columns.
    pub fn row_major(data: &'a [T], columns: usize) -> Matrix<'a, T> {
        Matrix { data, row_stride: columns, column_stride: 1 }
    }

    /// The same memory read as the transpose.
    pub fn transposed(self) -> Matrix<'a, T> {
        Matrix { data: self.data, row_stride: self.column_stride, column_stride: self.row_stride }
    }

    /// The rows after the first `count`; there must be some.
    pub(super) fn skip_rows(self, count: usize) -> Matrix<'a, T> {
        Matrix { data: &self.data[count * self.row_stride..], ..self }
    }

    /// The columns after the first `count`; there must be some.
    pub(super) fn skip_columns(self, count: usize) -> Matrix<'a, T> {
        Matrix { data: &self.data[count * self.column_stride..], ..self }
    }
}

/// `out = a x b`, row-major. With `round_steps` every product and sum is rounded to fp16, in index order.
///
/// # Panics
/// If a matrix or the output has fewer elements than the extents imply.
pub fn gemm(extents: Extents, a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], round_steps: bool) {
    gemm_with(Isa::best(), extents, a, b, out, round_steps);
}

fn gemm_with(isa: Isa, extents: Extents, a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], round_steps: bool) {
    let Extents { m, k, n } = extents;
    if round_steps {
        multiply_rounded_with(isa, extents, a, b, out);
    } else if n == 1 {
        multiply_with(isa, Extents { m: 1, k, n: m }, b.transposed(), a.transposed(), out);
    } else {
        multiply_with(isa, extents, a, b, out);
    }
}

/// `out = a x b`, row-major, for a right matrix of any element type, which is widened on the way to the
/// registers.
///
/// # Panics
/// If a matrix or the output has fewer elements than the extents imply.
pub fn multiply<T: Load>(extents: Extents, a: Matrix<'_>, b: Matrix<'_, T>, out: &mut [f32]) {
    multiply_with(Isa::best(), extents, a, b, out);
}

pub(super) fn multiply_with<T: Load>(
    isa: Isa,
    extents: Extents,
    a: Matrix<'_>,
    b: Matrix<'_, T>,
    out: &mut [f32],
) {
    let Extents { m, k, n } = extents;
    let out = &mut out[..m * n];
    if out.is_empty() || k == 0 {
        return out.fill(0.0);
    }
    let pieces = parallel::pieces(m.saturating_mul(n).saturating_mul(k));
    if gemv::takes_dots(extents, a, b) {
        gemv::dots(isa, k, a, b.transposed(), Grid::new(out, n), pieces);
    } else if gemv::takes_row_sums(extents, b) {
        gemv::row_sums(isa, k, a, b, Grid::new(out, n), pieces);
    } else {
        divide(Product { isa, mode: Fused, k, a, b, out: Grid::new(out, n) }, pieces);
    }
}

/// [`multiply`] with every product and sum rounded to fp16, in index order.
pub fn multiply_rounded<T: Load>(extents: Extents, a: Matrix<'_>, b: Matrix<'_, T>, out: &mut [f32]) {
    multiply_rounded_with(Isa::best(), extents, a, b, out);
}

fn multiply_rounded_with<T: Load>(
    isa: Isa,
    extents: Extents,
    a: Matrix<'_>,
    b: Matrix<'_, T>,
    out: &mut [f32],
) {
    let Extents { m, k, n } = extents;
    let out = &mut out[..m * n];
    if out.is_empty() || k == 0 {
        return out.fill(0.0);
    }
    let pieces = parallel::pieces(m.saturating_mul(n).saturating_mul(k));
    divide(Product { isa, mode: Rounded, k, a, b, out: Grid::new(out, n) }, pieces);
}

/// How a product is added to a sum.
trait Mode: Copy + Send {
    fn accumulate<S: Simd>(self, s: S, a: S::V, b: S::V, sum: S::V) -> S::V;
}

#[derive(Clone, Copy)]
struct Fused;

impl Mode for Fused {
    #[inline(always)]
    fn accumulate<S: Simd>(self, s: S, a: S::V, b: S::V, sum: S::V) -> S::V {
        s.mul_add(a, b, sum)
    }
}

#[derive(Clone, Copy)]
struct Rounded;

impl Mode for Rounded {
    #[inline(always)]
    fn accumulate<S: Simd>(self, s: S, a: S::V, b: S::V, sum: S::V) -> S::V {
        s.round_f16(s.add(sum, s.round_f16(s.mul(a, b))))
    }
}

/// A product, or a rectangle of one, to be computed by tiles.
struct Product<'a, T, M> {
    isa: Isa,
    mode: M,
    k: usize,
    a: Matrix<'a>,
    b: Matrix<'a, T>,
    out: Grid<'a>,
}

fn divide<T: Load, M: Mode>(product: Product<'_, T, M>, pieces: usize) {
    let Product { isa, mode, k, a, b, out } = product;
    let by_columns = out.columns() >= out.rows();
    let middle = if by_columns {
        parallel::half(out.columns(), COLUMNS, pieces)
    } else {
        parallel::half(out.rows(), ROWS, pieces)
    };
    let Some(middle) = middle else {
        let product = Product { isa, mode, k, a, b, out };
        return PACKED.with_borrow_mut(|packed| isa.run(Blocked { product, packed }));
    };
    let (first, second) = if by_columns {
        let (left, right) = out.split_columns(middle);
        let b_right = b.skip_columns(middle);
        (Product { isa, mode, k, a, b, out: left }, Product { isa, mode, k, a, b: b_right, out: right })
    } else {
        let (top, bottom) = out.split_rows(middle);
        let a_bottom = a.skip_rows(middle);
        (Product { isa, mode, k, a, b, out: top }, Product { isa, mode, k, a: a_bottom, b, out: bottom })
    };
    rayon::join(|| divide(first, pieces / 2), || divide(second, pieces - pieces / 2));
}

thread_local! {
    static PACKED: RefCell<Packed> = RefCell::default();
}

/// Packed blocks; kept by each thread for its next product.
#[derive(Default)]
struct Packed {
    a: AlignedBuf,
    b: AlignedBuf,
}

struct Blocked<'a, 'p, T, M> {
    product: Product<'a, T, M>,
    packed: &'p mut Packed,
}

impl<T: Load, M: Mode> Op for Blocked<'_, '_, T, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Blocked { product: Product { mode, k, a, b, mut out, .. }, packed } = self;
        let (m, n) = (out.rows(), out.columns());
        for columns in Blocks::new(n, COLUMN_BLOCK, COLUMNS) {
            for depth in Blocks::new(k, DEPTH_BLOCK, 1) {
                let right = panels::<COLUMNS>(&mut packed.b, columns.len(), depth.len());
                pack(s, b.transposed(), columns.clone(), depth.clone(), right);
                for rows in Blocks::new(m, ROW_BLOCK, ROWS) {
                    let left = panels::<ROWS>(&mut packed.a, rows.len(), depth.len());
                    pack(s, a, rows.clone(), depth.clone(), left);
                    let adds = depth.start > 0;
                    for (j, right) in columns.clone().step_by(COLUMNS).zip(right.chunks_exact(depth.len())) {
                        for (i, left) in rows.clone().step_by(ROWS).zip(left.chunks_exact(depth.len())) {
                            tile(s, mode, left, right, Place { out: &mut out, i, j, adds });
                        }
                    }
                }
            }
        }
    }
}

/// Room for the panels of `count` rows or columns.
fn panels<const WIDTH: usize>(buffer: &mut AlignedBuf, count: usize, depth: usize) -> &mut [[f32; WIDTH]] {
    let steps = count.div_ceil(WIDTH) * depth;
    let bytes = steps * size_of::<[f32; WIDTH]>();
    buffer.resize(bytes);
    bytemuck::cast_slice_mut(buffer)
}

/// Where a tile goes, and whether it continues the sums that are there.
struct Place<'g, 'a> {
    out: &'g mut Grid<'a>,
    i: usize,
    j: usize,
    adds: bool,
}

#[inline(always)]
fn tile<S: Simd, M: Mode>(
    s: S,
    mode: M,
    left: &[[f32; ROWS]],
    right: &[[f32; COLUMNS]],
    place: Place<'_, '_>,
) {
    let Place { out, i, j, adds } = place;
    let rows = ROWS.min(out.rows() - i);
    let columns = COLUMNS.min(out.columns() - j);
    let mut sums = [[s.splat(0.0); 2]; ROWS];
    let mut edge = [[0.0; COLUMNS]; ROWS];
    let is_whole = rows == ROWS && columns == COLUMNS;
    if adds && is_whole {
        for (r, sums) in sums.iter_mut().enumerate() {
            *sums = load_pair(s, &out.row(i + r)[j..]);
        }
    } else if adds {
        for (r, edge) in edge.iter_mut().enumerate().take(rows) {
            edge[..columns].copy_from_slice(&out.row(i + r)[j..][..columns]);
        }
        for (sums, edge) in sums.iter_mut().zip(&edge) {
            *sums = load_pair(s, edge);
        }
    }
    let sums = accumulate(s, mode, left, right, sums);
    if is_whole {
        for (r, sums) in sums.into_iter().enumerate() {
            store_pair(s, sums, &mut out.row(i + r)[j..]);
        }
    } else {
        for (sums, edge) in sums.into_iter().zip(&mut edge) {
            store_pair(s, sums, edge);
        }
        for (r, edge) in edge.iter().enumerate().take(rows) {
            out.row(i + r)[j..][..columns].copy_from_slice(&edge[..columns]);
        }
    }
}

#[inline(always)]
fn accumulate<S: Simd, M: Mode>(
    s: S,
    mode: M,
    left: &[[f32; ROWS]],
    right: &[[f32; COLUMNS]],
    mut sums: [[S::V; 2]; ROWS],
) -> [[S::V; 2]; ROWS] {
    for (left, right) in left.iter().zip(right) {
        let right = load_pair(s, right);
        for (sums, &a) in sums.iter_mut().zip(left) {
            let a = s.splat(a);
            sums[0] = mode.accumulate(s, a, right[0], sums[0]);
            sums[1] = mode.accumulate(s, a, right[1], sums[1]);
        }
    }
    sums
}

#[inline(always)]
fn load_pair<S: Simd>(s: S, from: &[f32]) -> [S::V; 2] {
    let (lanes, _) = from.as_chunks::<LANES>();
    [s.load(&lanes[0]), s.load(&lanes[1])]
}

#[inline(always)]
fn store_pair<S: Simd>(s: S, pair: [S::V; 2], to: &mut [f32]) {
    let (lanes, _) = to.as_chunks_mut::<LANES>();
    s.store(pair[0], &mut lanes[0]);
    s.store(pair[1], &mut lanes[1]);
}

/// Ranges of about equal length, at most `most`, that cover `0..len`; all but the last are multiples of `unit`.
struct Blocks {
    next: usize,
    len: usize,
    step: usize,
}

impl Blocks {
    fn new(len: usize, most: usize, unit: usize) -> Blocks {
        let count = len.div_ceil(most).max(1);
        Blocks { next: 0, len, step: len.div_ceil(count).next_multiple_of(unit) }
    }
}

impl Iterator for Blocks {
    type Item = Range<usize>;

    #[inline(always)]
    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.next;
        self.next = self.len.min(start + self.step);
        (start < self.next).then_some(start..self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy)]
    enum Layout {
        RowMajor,
        Transposed,
        /// Row-major with gaps between the elements.
        Sparse,
    }

    /// A matrix of fp16 values between -1 and 1.
    struct Sample {
        data: Vec<f32>,
        strides: (usize, usize),
    }

    impl Sample {
        fn new(rows: usize, columns: usize, layout: Layout, seed: usize) -> Sample {
            let strides = match layout {
                Layout::RowMajor => (columns, 1),
                Layout::Transposed => (1, rows),
                Layout::Sparse => (columns * 3 + 1, 3),
            };
            let len = rows * strides.0 + columns * strides.1 + 1;
            let data = (0..len).map(|i| value(i + seed)).collect();
            Sample { data, strides }
        }

        fn matrix(&self) -> Matrix<'_> {
            Matrix { data: &self.data, row_stride: self.strides.0, column_stride: self.strides.1 }
        }
    }

    fn value(i: usize) -> f32 {
        let hash = (i as u32).wrapping_add(1).wrapping_mul(0x9e37_79b9);
        f16::from_f32((hash >> 8) as f32 / (1 << 23) as f32 - 1.0).to_f32()
    }

    fn at(m: Matrix<'_>, row: usize, column: usize) -> f32 {
        m.data[row * m.row_stride + column * m.column_stride]
    }

    fn naive(e: Extents, a: Matrix<'_>, b: Matrix<'_>, add: impl Fn(f32, f32, f32) -> f32) -> Vec<f32> {
        let element = |row, column| (0..e.k).fold(0.0, |sum, i| add(at(a, row, i), at(b, i, column), sum));
        (0..e.m).flat_map(|row| (0..e.n).map(move |column| element(row, column))).collect()
    }

    /// Dot products are within the bound of their lanes, other ways give fused sums in index order.
    fn assert_sums(e: Extents, a: Matrix<'_>, b: Matrix<'_>, found: &[f32]) {
        let Extents { m, k, n } = e;
        let column = n == 1 && gemv::takes_dots(Extents { m: 1, k, n: m }, b.transposed(), a.transposed());
        if !column && !gemv::takes_dots(e, a, b) {
            return assert_eq!(found, naive(e, a, b, f32::mul_add), "{e:?}");
        }
        for (i, &x) in found.iter().enumerate() {
            let products = (0..k).map(|step| f64::from(at(a, i / n, step)) * f64::from(at(b, step, i % n)));
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
            let bound = (k / LANES + 4) as f64 * f64::from(f32::EPSILON) / 2.0 * size;
            assert!((f64::from(x) - sum).abs() <= bound, "{e:?} at {i}: {x} is not {sum}");
        }
    }

    fn on(isa: Isa, e: Extents, a: Matrix<'_>, b: Matrix<'_>, round_steps: bool) -> Vec<f32> {
        let mut out = vec![f32::NAN; e.m * e.n];
        gemm_with(isa, e, a, b, &mut out, round_steps);
        out
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        prop_oneof![Just(Layout::RowMajor), Just(Layout::Transposed), Just(Layout::Sparse)]
    }

    proptest! {
        #[test]
        fn any_extents_and_strides_give_the_sums_on_every_isa(
            m in 0usize..40, k in 0usize..50, n in 0usize..40,
            a in layouts(), b in layouts(), round_steps: bool,
        ) {
            let e = Extents { m, k, n };
            let (a, b) = (Sample::new(m, k, a, 0), Sample::new(k, n, b, 7));
            let (a, b) = (a.matrix(), b.matrix());
            let best = on(Isa::best(), e, a, b, round_steps);
            for isa in Isa::all() {
                prop_assert_eq!(&on(isa, e, a, b, round_steps), &best);
            }
            if round_steps {
                let round = |x| f16::from_f32(x).to_f32();
                prop_assert_eq!(best, naive(e, a, b, |a, b, sum| round(sum + round(a * b))));
            } else {
                assert_sums(e, a, b, &best);
            }
        }
    }

    #[test]
    fn blocks_do_not_change_the_sums() {
        for (m, k, n) in [(ROW_BLOCK + 5, 2 * DEPTH_BLOCK + 3, 33), (17, 5, COLUMN_BLOCK + 9), (7, 600, 1030)]
        {
            let e = Extents { m, k, n };
            let (a, b) = (Sample::new(m, k, Layout::RowMajor, 0), Sample::new(k, n, Layout::RowMajor, 1));
            let (a, b) = (a.matrix(), b.matrix());
            assert_sums(e, a, b, &on(Isa::best(), e, a, b, false));
        }
    }

    #[test]
    fn threads_do_not_change_the_sums() {
        for (m, k, n) in [(130, 300, 170), (1, 2100, 199), (3, 500, 1111), (16, 1030, 37)] {
            let e = Extents { m, k, n };
            let (a, b) = (Sample::new(m, k, Layout::RowMajor, 0), Sample::new(k, n, Layout::Transposed, 1));
            for b in [b.matrix(), Sample::new(k, n, Layout::RowMajor, 1).matrix()] {
                let with = |threads| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    pool.install(|| on(Isa::best(), e, a.matrix(), b, false))
                };
                let alone = with(1);
                assert_sums(e, a.matrix(), b, &alone);
                assert!((2..5).all(|threads| with(threads) == alone));
            }
        }
    }

    #[test]
    fn narrow_weights_equal_their_widened_copy() {
        for m in [1, 3, 16, 40] {
            let e = Extents { m, k: 77, n: 37 };
            let x = Sample::new(m, e.k, Layout::RowMajor, 0);
            let weights = Sample::new(e.n, e.k, Layout::RowMajor, 5).data;
            let halves: Vec<f16> = weights.iter().map(|&w| f16::from_f32(w)).collect();
            let bytes: Vec<i8> = weights.iter().map(|&w| (w * 127.0) as i8).collect();
            let widened: Vec<f32> = bytes.iter().map(|&w| f32::from(w)).collect();
            let mut found = vec![0.0; m * e.n];
            for isa in Isa::all() {
                for transposed in [true, false] {
                    multiply_with(isa, e, x.matrix(), view(&halves, transposed, e), &mut found);
                    assert_eq!(found, on(isa, e, x.matrix(), view(&weights, transposed, e), false));
                    multiply_with(isa, e, x.matrix(), view(&bytes, transposed, e), &mut found);
                    assert_eq!(found, on(isa, e, x.matrix(), view(&widened, transposed, e), false));
                }
            }
        }
        fn view<T>(data: &[T], transposed: bool, e: Extents) -> Matrix<'_, T> {
            if transposed { Matrix::row_major(data, e.k).transposed() } else { Matrix::row_major(data, e.n) }
        }
    }

    #[test]
    fn infinities_and_nans_stay_in_their_rows() {
        let a = [f32::INFINITY, 1.0, f32::NAN, 1.0, 2.0, 3.0];
        let b = [1.0, -1.0, 0.0, 0.0];
        for isa in Isa::all() {
            for round_steps in [false, true] {
                let (a, b) = (Matrix::row_major(&a, 2), Matrix::row_major(&b, 2));
                let out = on(isa, Extents { m: 3, k: 2, n: 2 }, a, b, round_steps);
                assert_eq!(out[..2], [f32::INFINITY, f32::NEG_INFINITY]);
                assert!(out[2].is_nan() && out[3].is_nan());
                assert_eq!(out[4..], [2.0, -2.0]);
            }
        }
    }
}
