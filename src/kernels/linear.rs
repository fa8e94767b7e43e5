//! Products with weights stored as rows: `[m, k] x [n, k]`, transposed, read in the type they are stored in.

use super::gemm::{self, Extents, Matrix};
use super::gemv;
use super::simd::{Grid, Isa, Load};

/// `out[m, n] = x[m, k] x w[n, k]`, transposed. Weights are widened on the way to the registers.
pub fn linear<T: Load>(extents: Extents, x: &[f32], w: &[T], out: &mut [f32]) {
    let Extents { k, .. } = extents;
    gemm::multiply(extents, Matrix::row_major(x, k), Matrix::row_major(w, k).transposed(), out);
}

/// The sum of products of two rows of the same length.
pub fn dot<T: Load>(x: &[f32], w: &[T]) -> f32 {
    assert_eq!(x.len(), w.len(), "rows are of the same length");
    let mut out = [0.0];
    let (x, w) = (Matrix::row_major(x, x.len()), Matrix::row_major(w, w.len()));
    gemv::dots(Isa::best(), x.row_stride, x, w, Grid::new(&mut out, 1), 1);
    out[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn rows_of_weights_give_columns_of_results() {
        let w = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(f16::from_f32);
        let mut out = [0.0; 4];
        linear(Extents { m: 2, k: 3, n: 2 }, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &w, &mut out);
        assert_eq!(out, [1.0, 4.0, 6.0, 15.0]);
    }

    #[test]
    fn dots_are_exact_on_small_integers() {
        for len in [0, 1, 7, 8, 9, 31, 200] {
            let x: Vec<f32> = (0..len).map(|i| (i % 13) as f32 - 6.0).collect();
            let w: Vec<i8> = (0..len).map(|i| (i % 17) as i8 - 8).collect();
            let expected: f32 = x.iter().zip(&w).map(|(x, &w)| x * f32::from(w)).sum();
            assert_eq!(dot(&x, &w), expected);
            let halves: Vec<f16> = w.iter().map(|&w| f16::from(w)).collect();
            assert_eq!(dot(&x, &halves), expected);
        }
    }
}
