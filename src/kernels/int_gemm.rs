//! Exact matrix multiplication of 32-bit integers, wrapping on overflow.

use super::gemm::Extents;

/// A strided matrix of integers.
#[derive(Debug, Clone, Copy)]
pub struct IntMatrix<'a> {
    /// Elements, starting with the first of the matrix.
    pub data: &'a [i32],
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub column_stride: usize,
}

impl<'a> IntMatrix<'a> {
    /// A row-major matrix with `columns` columns.
    pub fn row_major(data: &'a [i32], columns: usize) -> IntMatrix<'a> {
        IntMatrix { data, row_stride: columns, column_stride: 1 }
    }

    /// The same memory read as the transpose.
    pub fn transposed(self) -> IntMatrix<'a> {
        IntMatrix { data: self.data, row_stride: self.column_stride, column_stride: self.row_stride }
    }
}

/// `out += a x b`, row-major.
pub fn int_gemm(extents: Extents, a: IntMatrix<'_>, b: IntMatrix<'_>, out: &mut [i32]) {
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
