//! Matrix multiplication.

use super::convert::round_f16;

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
pub struct Matrix<'a> {
    /// Elements, starting with the first of the matrix.
    pub data: &'a [f32],
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A row-major matrix with `columns` columns.
    pub fn row_major(data: &'a [f32], columns: usize) -> Matrix<'a> {
        Matrix { data, row_stride: columns, column_stride: 1 }
    }

    /// The same memory read as the transpose.
    pub fn transposed(self) -> Matrix<'a> {
        Matrix { data: self.data, row_stride: self.column_stride, column_stride: self.row_stride }
    }
}

/// `out = a x b`, row-major. With `round_steps` every product and sum is rounded to fp16.
pub fn gemm(extents: Extents, a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], round_steps: bool) {
    let Extents { m, k, n } = extents;
    for row in 0..m {
        for column in 0..n {
            let mut sum = 0.0f32;
            for i in 0..k {
                let product = a.data[row * a.row_stride + i * a.column_stride]
                    * b.data[i * b.row_stride + column * b.column_stride];
                sum = if round_steps { round_f16(sum + round_f16(product)) } else { sum + product };
            }
            out[row * n + column] = sum;
        }
    }
}
