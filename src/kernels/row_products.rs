//! Sums of products of one row with rows of a matrix, read one after the other.

use super::gemm::Matrix;
use super::simd::{LANES, Load, Op, Simd, WIDE};

/// Wide vectors that are summed side by side.
const WAYS: usize = 4;

/// Dot products of one row.
pub(super) struct RowDots<'a, T> {
    pub(super) x: &'a [f32],
    pub(super) w: Matrix<'a, T>,
    pub(super) out: &'a mut [f32],
}

impl<T: Load> Op for RowDots<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        sum_rows(s, &PlainRows { x: self.x, w: self.w }, 0, self.out);
    }
}

struct PlainRows<'a, T> {
    x: &'a [f32],
    w: Matrix<'a, T>,
}

impl<S: Simd, T: Load> RowProducts<S> for PlainRows<'_, T> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        row_dot(s, self.x, &self.w.data[row * self.w.row_stride..][..self.x.len()])
    }
}

/// Rows that one row is multiplied with, one after the other.
pub(super) trait RowProducts<S: Simd> {
    /// Products of a row, lane by lane.
    fn lanes(&self, s: S, row: usize) -> S::V;

    /// Those of a row and the next.
    #[inline(always)]
    fn pair(&self, s: S, row: usize) -> [S::V; 2] {
        [self.lanes(s, row), self.lanes(s, row + 1)]
    }
}

/// The sums of the rows from `first` on.
#[inline(always)]
pub(super) fn sum_rows<S: Simd>(s: S, rows: &impl RowProducts<S>, first: usize, out: &mut [f32]) {
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
    let [a, b, c, d] = sums;
    s.fold_wide(s.add_wide(s.add_wide(a, b), s.add_wide(c, d)))
}
