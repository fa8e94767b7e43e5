//! GEMV in rows of weights: the walk that every storage shares, and the dot product of dense rows.
//!
//! Eight rows at a time give eight vectors of partial sums, which one transposition reduces to a vector of results. A row is
//! read from its beginning to its end before the next, which is the order that memory is fastest in.

use super::gemm::Matrix;
use super::simd::{LANES, Load, Op, Simd, WIDE};

/// Wide vectors that are summed side by side, to hide the latency of a multiply-add.
const WAYS: usize = 4;

/// GEMV with weights of a float type.
pub(super) struct DenseGemv<'a, T> {
    pub(super) x: &'a [f32],
    pub(super) w: Matrix<'a, T>,
    pub(super) out: &'a mut [f32],
}

impl<T: Load> Op for DenseGemv<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        gemv_rows(s, &DenseRows { x: self.x, w: self.w }, 0, self.out);
    }
}

struct DenseRows<'a, T> {
    x: &'a [f32],
    w: Matrix<'a, T>,
}

impl<S: Simd, T: Load> GemvRows<S> for DenseRows<'_, T> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        row_dot(s, self.x, &self.w.data[row * self.w.row_stride..][..self.x.len()])
    }
}

/// Rows of weights in some storage.
pub(super) trait GemvRows<S: Simd> {
    /// Partial sums of a row's products, lane by lane.
    fn lanes(&self, s: S, row: usize) -> S::V;

    /// Those of a row and the next.
    #[inline(always)]
    fn pair(&self, s: S, row: usize) -> [S::V; 2] {
        [self.lanes(s, row), self.lanes(s, row + 1)]
    }
}

/// The sums of the rows from `first` on.
#[inline(always)]
pub(super) fn gemv_rows<S: Simd>(s: S, rows: &impl GemvRows<S>, first: usize, out: &mut [f32]) {
    let (groups, rest) = out.as_chunks_mut::<LANES>();
    let mut row = first;
    for group in groups {
        let mut lanes = [s.splat(0.0); LANES];
        for pair in lanes.as_chunks_mut().0 {
            *pair = rows.pair(s, row);
            row += pair.len();
        }
        s.store(s.reduce_add_each(lanes), group);
    }
    for out in rest {
        *out = s.reduce_add(rows.lanes(s, row));
        row += 1;
    }
}

/// The products of two rows, summed in lanes that are then added to eight.
#[inline(always)]
fn row_dot<S: Simd, T: Load>(s: S, x: &[f32], w: &[T]) -> S::V {
    let mut sums = [s.splat_wide(0.0); WAYS];
    let (x_groups, x_rest) = x.as_chunks::<{ WAYS * WIDE }>();
    let (w_groups, w_rest) = w.as_chunks::<{ WAYS * WIDE }>();
    for (x, w) in x_groups.iter().zip(w_groups) {
        let (x, w) = (x.as_chunks().0, w.as_chunks().0);
        for i in 0..WAYS {
            sums[i] = s.mul_add_wide(s.load_wide(&x[i]), T::load_wide(s, &w[i]), sums[i]);
        }
    }
    for ((x, w), sum) in x_rest.chunks(WIDE).zip(w_rest.chunks(WIDE)).zip(&mut sums) {
        *sum = s.mul_add_wide(f32::load_some_wide(s, x), T::load_some_wide(s, w), *sum);
    }
    // In pairs, as every instruction set does it: the order of the sum is part of the result.
    let [a, b, c, d] = sums;
    s.fold_wide(s.add_wide(s.add_wide(a, b), s.add_wide(c, d)))
}
