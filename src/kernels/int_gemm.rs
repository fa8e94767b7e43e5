//! Exact matrix multiplication of 32-bit integers, wrapping on overflow.

use super::gemm::{Extents, Matrix};

/// `out += a x b`, row-major.
pub fn int_gemm(extents: Extents, a: Matrix<'_, i32>, b: Matrix<'_, i32>, out: &mut [i32]) {
    let Extents { m, k, n } = extents;
    for (row, out) in out.chunks_exact_mut(n.max(1)).enumerate().take(m) {
        for i in 0..k {
            let left = a.data[row * a.row_stride + i * a.column_stride];
            for (column, out) in out.iter_mut().enumerate() {
                let right = b.data[i * b.row_stride + column * b.column_stride];
                *out = out.wrapping_add(left.wrapping_mul(right));
            }
        }
    }
}
