//! Products of one row with compressed weights, which are read as they are stored and never expanded.
//!
//! The factor of a block is applied to the sum of its products, so weights are not rounded to fp16 on the way.

use half::f16;

use super::gemv;
use super::parallel;
use super::simd::{Grid, Isa, LANES, Load, Op, Simd};
use crate::kernels::gemm::Matrix;
use crate::tensor::TensorView;

/// Rows that are multiplied side by side.
const ROWS: usize = 4;
/// Rows below which work is not divided further.
const ROW_UNIT: usize = 8;

/// A matrix of compressed weights, by rows.
#[derive(Clone, Copy)]
pub struct PackedRows<'a> {
    /// Elements of a row.
    pub columns: usize,
    /// What is stored for each element.
    pub codes: Codes<'a>,
}

/// How elements are stored.
#[derive(Clone, Copy)]
pub enum Codes<'a> {
    /// Signed bytes, to be multiplied by the factor of their block.
    Bytes(&'a [i8], Factors<'a>),
    /// Signed numbers of four bits, two to a byte, low half first, to be multiplied by the factor of their block.
    Nibbles(&'a [u8], Factors<'a>),
    /// Indices of four bits, two to a byte, low half first, into tables of sixteen numbers of which each serves so
    /// many rows.
    Palette(&'a [u8], &'a [f32], usize),
}

/// A factor for each block of a row.
#[derive(Clone, Copy)]
pub struct Factors<'a> {
    /// Rows that share factors.
    pub rows: usize,
    /// Elements of a block, which divides a row.
    pub block: usize,
    /// Factors as fp16 or f32.
    pub values: TensorView<'a>,
}

impl PackedRows<'_> {
    /// Whether [`PackedRows::multiply`] can be used: rows are whole vectors and so are their blocks.
    pub fn is_regular(&self) -> bool {
        let blocks = match self.codes {
            Codes::Bytes(_, factors) | Codes::Nibbles(_, factors) => {
                let typed = factors.values.slice::<f16>().is_ok() || factors.values.slice::<f32>().is_ok();
                typed
                    && factors.block.is_multiple_of(LANES)
                    && self.columns.is_multiple_of(factors.block.max(1))
            }
            Codes::Palette(..) => true,
        };
        blocks && self.columns > 0 && self.columns.is_multiple_of(LANES)
    }

    /// `out[r]` is the sum of products of `x` with row `first + r`. Lanes are summed as in other products of one
    /// row, blocks one after the other.
    ///
    /// # Panics
    /// If rows are not regular, or there are fewer than `first` and the outputs imply.
    pub fn multiply(&self, first: usize, x: &[f32], out: &mut [f32]) {
        self.multiply_with(Isa::best(), first, x, out);
    }

    fn multiply_with(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        let pieces = parallel::pieces(out.len().saturating_mul(self.columns));
        let x = &x[..self.columns];
        parallel::parts(out, ROW_UNIT, pieces, &|start, out| self.part(isa, first + start, x, out));
    }

    fn part(&self, isa: Isa, first: usize, x: &[f32], out: &mut [f32]) {
        let columns = self.columns;
        match self.codes {
            Codes::Palette(codes, tables, rows) => {
                isa.run(Sums { x, first, out, of: Looked { codes, tables, rows } })
            }
            Codes::Bytes(codes, factors) if factors.block == columns => {
                let rows = Matrix::row_major(&codes[first * columns..], columns);
                let (x, count) = (Matrix::row_major(x, columns), out.len());
                gemv::dots(isa, columns, x, rows, Grid::new(out, count), 1);
                for (r, out) in out.iter_mut().enumerate() {
                    *out *= factors.at((first + r) / factors.rows);
                }
            }
            Codes::Bytes(codes, factors) => {
                match (factors.values.slice::<f16>(), factors.values.slice::<f32>()) {
                    (Ok(values), _) => {
                        isa.run(Sums { x, first, out, of: Scaled { codes: Bytes(codes), factors, values } })
                    }
                    (_, values) => {
                        let values: &[f32] = values.unwrap_or(&[]);
                        isa.run(Sums { x, first, out, of: Scaled { codes: Bytes(codes), factors, values } });
                    }
                }
            }
            Codes::Nibbles(codes, factors) => {
                match (factors.values.slice::<f16>(), factors.values.slice::<f32>()) {
                    (Ok(values), _) => {
                        isa.run(Sums { x, first, out, of: Scaled { codes: Nibbles(codes), factors, values } })
                    }
                    (_, values) => {
                        let values: &[f32] = values.unwrap_or(&[]);
                        isa.run(Sums {
                            x,
                            first,
                            out,
                            of: Scaled { codes: Nibbles(codes), factors, values },
                        });
                    }
                }
            }
        }
    }
}

impl Factors<'_> {
    fn at(&self, index: usize) -> f32 {
        let mut value = [0.0];
        super::convert::to_f32(&self.values, index..index + 1, &mut value);
        value[0]
    }
}

/// Codes that become vectors of numbers.
trait Read: Copy {
    /// Eight elements from the `at`-th on, which is a multiple of eight.
    fn read<S: Simd>(self, s: S, at: usize) -> S::V;
}

#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [i8]);

impl Read for Bytes<'_> {
    #[inline(always)]
    fn read<S: Simd>(self, s: S, at: usize) -> S::V {
        i8::load_some(s, &self.0[at..at + LANES])
    }
}

#[derive(Clone, Copy)]
struct Nibbles<'a>(&'a [u8]);

impl Read for Nibbles<'_> {
    #[inline(always)]
    fn read<S: Simd>(self, s: S, at: usize) -> S::V {
        s.sub(s.load_u4(four(self.0, at).map(|byte| byte ^ 0x88)), s.splat(8.0))
    }
}

/// The bytes of eight elements of four bits.
#[inline(always)]
fn four(codes: &[u8], at: usize) -> [u8; 4] {
    let bytes = &codes[at / 2..at / 2 + 4];
    [bytes[0], bytes[1], bytes[2], bytes[3]]
}

/// A way to multiply rows.
trait Weighted: Copy {
    /// The sums of products of `x` with `N` rows from `row` on, lane by lane.
    fn sums<S: Simd, const N: usize>(self, s: S, row: usize, x: &[f32]) -> [S::V; N];
}

#[derive(Clone, Copy)]
struct Scaled<'a, C, F> {
    codes: C,
    factors: Factors<'a>,
    values: &'a [F],
}

impl<C: Read, F: Load> Weighted for Scaled<'_, C, F> {
    #[inline(always)]
    fn sums<S: Simd, const N: usize>(self, s: S, row: usize, x: &[f32]) -> [S::V; N] {
        let block = self.factors.block;
        let (columns, blocks) = (x.len(), x.len() / block);
        let mut totals = [s.splat(0.0); N];
        for first in (0..blocks).step_by(LANES) {
            let count = LANES.min(blocks - first);
            let mut factors = [[0.0; LANES]; N];
            for (r, factors) in factors.iter_mut().enumerate() {
                let at = (row + r) / self.factors.rows * blocks + first;
                s.store(F::load_some(s, &self.values[at..at + count]), factors);
            }
            for b in 0..count {
                let start = (first + b) * block;
                let mut sums = [s.splat(0.0); N];
                for at in (start..start + block).step_by(LANES) {
                    let x = f32::load_some(s, &x[at..at + LANES]);
                    for r in 0..N {
                        sums[r] = s.mul_add(x, self.codes.read(s, (row + r) * columns + at), sums[r]);
                    }
                }
                for r in 0..N {
                    totals[r] = s.mul_add(sums[r], s.splat(factors[r][b]), totals[r]);
                }
            }
        }
        totals
    }
}

#[derive(Clone, Copy)]
struct Looked<'a> {
    codes: &'a [u8],
    tables: &'a [f32],
    rows: usize,
}

impl Weighted for Looked<'_> {
    #[inline(always)]
    fn sums<S: Simd, const N: usize>(self, s: S, row: usize, x: &[f32]) -> [S::V; N] {
        let mut totals = [s.splat(0.0); N];
        let mut tables = [[s.splat(0.0); 2]; N];
        for (r, table) in tables.iter_mut().enumerate() {
            let values = &self.tables[(row + r) / self.rows * 16..][..16];
            *table = [f32::load_some(s, &values[..LANES]), f32::load_some(s, &values[LANES..])];
        }
        for at in (0..x.len()).step_by(LANES) {
            let lanes = f32::load_some(s, &x[at..at + LANES]);
            for r in 0..N {
                let weights = s.look_up(tables[r], four(self.codes, (row + r) * x.len() + at));
                totals[r] = s.mul_add(lanes, weights, totals[r]);
            }
        }
        totals
    }
}

struct Sums<'a, W> {
    x: &'a [f32],
    first: usize,
    out: &'a mut [f32],
    of: W,
}

impl<W: Weighted> Op for Sums<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Sums { x, first, out, of } = self;
        let (groups, rest) = out.as_chunks_mut::<ROWS>();
        let mut row = first;
        for group in groups {
            let sums = of.sums::<S, ROWS>(s, row, x);
            for r in 0..ROWS {
                group[r] = s.reduce_add(sums[r]);
            }
            row += ROWS;
        }
        for out in rest {
            let [sum] = of.sums::<S, 1>(s, row, x);
            *out = s.reduce_add(sum);
            row += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, packed};

    fn assert_close(found: &[f32], weights: impl Fn(usize, usize) -> f32, x: &[f32]) {
        for (r, &found) in found.iter().enumerate() {
            let products: Vec<f64> =
                x.iter().enumerate().map(|(c, &x)| f64::from(x) * f64::from(weights(r, c))).collect();
            let (sum, size) = (products.iter().sum::<f64>(), products.iter().map(|p| p.abs()).sum::<f64>());
            assert!((f64::from(found) - sum).abs() <= 2e-6 * size, "row {r}: {found} is not {sum}");
        }
    }

    /// The product on every instruction set, from the third row on.
    fn product(packed: &PackedRows<'_>, x: &[f32], rows: usize) -> Vec<f32> {
        assert!(packed.is_regular());
        let mut out = vec![f32::NAN; rows];
        packed.multiply(2, x, &mut out);
        for isa in Isa::all() {
            let mut again = vec![f32::NAN; rows];
            packed.multiply_with(isa, 2, x, &mut again);
            assert_eq!(again, out, "{isa:?}");
        }
        out
    }

    #[test]
    fn integers_are_scaled_by_block() {
        let (rows, columns) = (13, 96);
        let x: Vec<f32> = (0..columns).map(|i| (i * 7 % 23) as f32 / 23.0 - 0.4).collect();
        let code = |i: usize| (i * 37 % 251) as u8;
        for (block, shared) in [(96, 1), (96, 5), (32, 1), (8, 3)] {
            let per_row = columns / block;
            let scale = |i: usize| f16::from_f32(0.01 + (i % 11) as f32 / 64.0);
            let halves: Vec<f16> = (0..rows * per_row).map(scale).collect();
            let wide: Vec<f32> = halves.iter().map(|x| x.to_f32()).collect();
            let factor = |r: usize, c: usize| wide[(r + 2) / shared * per_row + c / block];
            let count = [halves.len()];
            let views = [
                TensorView::new(DType::F16, &count, bytemuck::cast_slice(&halves)).unwrap(),
                TensorView::new(DType::F32, &count, bytemuck::cast_slice(&wide)).unwrap(),
            ];
            for values in views {
                let factors = Factors { rows: shared, block, values };
                let bytes: Vec<i8> = (0..rows * columns).map(|i| code(i) as i8).collect();
                let nibbles = packed::pack((0..rows * columns).map(|i| code(i) & 15), 4);
                let signed = |i: usize| f32::from(((code(i) << 4) as i8) >> 4);
                let found =
                    product(&PackedRows { columns, codes: Codes::Bytes(&bytes, factors) }, &x, rows - 2);
                assert_close(&found, |r, c| f32::from(bytes[(r + 2) * columns + c]) * factor(r, c), &x);
                let found =
                    product(&PackedRows { columns, codes: Codes::Nibbles(&nibbles, factors) }, &x, rows - 2);
                assert_close(&found, |r, c| signed((r + 2) * columns + c) * factor(r, c), &x);
            }
        }
    }

    #[test]
    fn indices_are_looked_up_in_the_table_of_their_rows() {
        let (rows, columns) = (12, 40);
        let x: Vec<f32> = (0..columns).map(|i| (i * 5 % 17) as f32 / 17.0 - 0.5).collect();
        let tables: Vec<f32> = (0..3 * 16).map(|i| (i * 29 % 31) as f32 / 7.0 - 2.0).collect();
        let code = |i: usize| (i * 13 % 16) as u8;
        let codes = packed::pack((0..rows * columns).map(code), 4);
        let found = product(&PackedRows { columns, codes: Codes::Palette(&codes, &tables, 4) }, &x, rows - 2);
        assert_close(&found, |r, c| tables[(r + 2) / 4 * 16 + usize::from(code((r + 2) * columns + c))], &x);
    }

    #[test]
    fn what_is_no_whole_vector_is_not_regular() {
        let values = TensorView::new(DType::F32, &[1], &[0; 4]).unwrap();
        let rows = |columns, block| PackedRows {
            columns,
            codes: Codes::Nibbles(&[], Factors { rows: 1, block, values }),
        };
        assert!(rows(32, 16).is_regular());
        assert!(!rows(36, 36).is_regular() && !rows(32, 4).is_regular() && !rows(0, 8).is_regular());
    }
}
