//! GEMM: `out = a x b`, for strided matrices of f32, fp16 and integers.
//!
//! Three ways, chosen by extents and strides alone: few rows times contiguous columns are dot products, few rows times a
//! row-major matrix are weighted sums of rows (`gemv`), and all else is packed and blocked (`blocked_gemm`).
//!
//! There are libraries for this. They choose the order of a sum by the machine and the number of threads; here results are the
//! same bits on every instruction set and number of threads, which regression gates rely on. In the last two ways every
//! element is the fused sum of its products in index order. Operands of fp16 and compressed weights are widened while they
//! are packed, and results rounded once where they are stored.

use std::ops::Range;

use super::blocked_gemm::{DecodedRows, FmaF32, Gemm, RoundF16, blocked_gemm};
use super::gemv;
use super::parallel;
use super::simd::{Grid, Isa, Load, Store};

/// The extents of a product `[m, k] x [k, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual names")]
pub struct Extents {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

/// A strided view of a matrix.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T = f32> {
    /// Elements, starting with the first of the matrix.
    pub data: &'a [T],
    /// Elements from a row to the next.
    pub row_stride: usize,
    /// Elements from a column to the next.
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
        // A single column is the transposed product of a row, which takes a GEMV form.
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
    if gemv::uses_dots(extents, a, b) {
        gemv::dot_gemv(isa, k, a, b, Grid::new(out, n), pieces);
    } else if gemv::uses_axpy(extents, b) {
        gemv::axpy_gemv(isa, k, a, b, Grid::new(out, n), pieces);
    } else {
        let out = Grid::new(out, n);
        blocked_gemm(Gemm { isa, mode: FmaF32, k, left: a, right: b, bias: None, out }, pieces);
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
    // Blocked whatever the extents: lanes of the dot form would round in another order than the index's.
    let pieces = parallel::pieces(m.saturating_mul(n).saturating_mul(k));
    let out = Grid::new(out, n);
    blocked_gemm(Gemm { isa, mode: RoundF16, k, left: a, right: b, bias: None, out }, pieces);
}

/// The left operand of [`weight_gemm`], one row per output row.
#[derive(Clone, Copy)]
pub enum Weights<'a, T> {
    /// All of them in memory.
    Dense(Matrix<'a, T>),
    /// Produced a few rows at a time.
    Decode(&'a (dyn Fn(Range<usize>, &mut [f32]) + Sync)),
}

/// `out = weights x b + bias`, row-major, in fused sums that are rounded once where they are stored. There is an
/// element of `bias` for each row.
///
/// # Panics
/// If a matrix or the output has fewer elements than the extents imply.
pub fn weight_gemm<T: Load, U: Load, O: Store>(
    extents: Extents,
    weights: Weights<'_, T>,
    b: Matrix<'_, U>,
    bias: Option<&[f32]>,
    out: &mut [O],
) {
    let (isa, Extents { m, k, n }) = (Isa::best(), extents);
    let out = &mut out[..m * n];
    if out.is_empty() || k == 0 {
        let rows = out.chunks_mut(n.max(1)).enumerate();
        return rows.for_each(|(i, row)| row.fill(O::narrow(bias.map_or(0.0, |bias| bias[i]))));
    }
    let pieces = parallel::pieces(m.saturating_mul(n).saturating_mul(k));
    let out = Grid::new(out, n);
    match weights {
        Weights::Dense(left) => {
            blocked_gemm(Gemm { isa, mode: FmaF32, k, left, right: b, bias, out }, pieces);
        }
        Weights::Decode(read) => {
            let left = DecodedRows { read, columns: k };
            blocked_gemm(Gemm { isa, mode: FmaF32, k, left, right: b, bias, out }, pieces);
        }
    }
}

/// `out = a x b` in fused sums that are rounded once where they are stored, on this thread alone.
pub(super) fn gemm_on_this_thread<T: Load, U: Load, O: Store>(
    isa: Isa,
    k: usize,
    left: Matrix<'_, T>,
    right: Matrix<'_, U>,
    out: Grid<'_, O>,
) {
    blocked_gemm(Gemm { isa, mode: FmaF32, k, left, right, bias: None, out }, 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::LANES;
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
        let column = n == 1 && gemv::uses_dots(Extents { m: 1, k, n: m }, b.transposed(), a.transposed());
        if !column && !gemv::uses_dots(e, a, b) {
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
        for (m, k, n) in [(250, 515, 33), (17, 5, 1100), (7, 600, 1030), (90, 1600, 40)] {
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
    fn weights_in_memory_or_read_give_the_same_sums() {
        for (m, k, n) in [(1, 3, 2), (13, 40, 33), (130, 577, 70), (25, 9, 200), (3, 0, 4)] {
            let e = Extents { m, k, n };
            let (w, x) =
                (Sample::new(m, k, Layout::RowMajor, 0).data, Sample::new(k, n, Layout::RowMajor, 3).data);
            let bias: Vec<f32> = (0..m).map(|i| value(i + 11)).collect();
            let sums = naive(e, Matrix::row_major(&w, k), Matrix::row_major(&x, n), f32::mul_add);
            let expected: Vec<f32> = sums.iter().enumerate().map(|(i, sum)| sum + bias[i / n]).collect();
            let halves: Vec<f16> = w.iter().map(|&w| f16::from_f32(w)).collect();
            let narrow: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
            let read =
                |rows: Range<usize>, out: &mut [f32]| out.copy_from_slice(&w[rows.start * k..rows.end * k]);
            let (mut wide, mut rounded) = (vec![f32::NAN; m * n], vec![f16::NAN; m * n]);
            let x = Matrix::row_major(&x[..], n);
            weight_gemm(e, Weights::Dense(Matrix::row_major(&halves[..], k)), x, Some(&bias), &mut wide);
            assert_eq!(wide, expected, "{e:?}");
            weight_gemm(e, Weights::<f32>::Decode(&read), x, None, &mut wide);
            assert_eq!(wide, sums, "{e:?}");
            let x = Matrix::row_major(&narrow[..], n);
            weight_gemm(e, Weights::Dense(Matrix::row_major(&w[..], k)), x, Some(&bias), &mut rounded);
            assert!(rounded.iter().zip(&expected).all(|(&r, &e)| r == f16::from_f32(e)), "{e:?}");
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
