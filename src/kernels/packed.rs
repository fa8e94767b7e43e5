//! Products of one row with compressed weights, which are read as they are stored and never expanded.
//!
//! The factor of a block is applied to the sum of its products, so weights are not rounded to fp16 on the way.

use half::f16;

use super::convert::to_f32;
use super::gemm::Matrix;
use super::simd::{Grid, Isa, LANES, Load, Op, Simd, WIDE};
use super::{gemv, parallel};
use crate::tensor::TensorView;

/// Rows that are multiplied side by side.
const ROWS: usize = 4;
/// Rows below which work is not divided further.
const ROW_UNIT: usize = 8;
/// Elements of four bits in a group: the lower halves of its bytes are multiplied side by side, then the upper.
const GROUP: usize = 2 * WIDE;

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
    /// Signed bytes, to be multiplied by the factor of their row.
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
    /// Whether [`PackedRows::multiply`] can be used.
    pub fn is_regular(&self) -> bool {
        let typed = |factors: Factors<'_>| {
            factors.values.slice::<f16>().is_ok() || factors.values.slice::<f32>().is_ok()
        };
        self.columns > 0
            && match self.codes {
                Codes::Bytes(_, factors) => factors.block == self.columns && typed(factors),
                Codes::Nibbles(_, factors) => {
                    let whole = factors.block > 0 && self.columns.is_multiple_of(factors.block);
                    whole && factors.block.is_multiple_of(GROUP) && typed(factors)
                }
                Codes::Palette(..) => self.columns.is_multiple_of(GROUP),
            }
    }

    /// Elements of scratch memory that [`PackedRows::multiply`] needs.
    pub fn scratch_len(&self) -> usize {
        match self.codes {
            Codes::Bytes(..) => 0,
            Codes::Nibbles(..) | Codes::Palette(..) => self.columns + self.columns / GROUP,
        }
    }

    /// `out[r]` is the sum of products of `x` with row `first + r`. Bytes are summed as in other products of one
    /// row; of four bits, sixteen sums run side by side, and blocks follow one another.
    ///
    /// # Panics
    /// If rows are not regular, there are fewer than `first` and the outputs imply, or scratch memory is too short.
    pub fn multiply(&self, first: usize, x: &[f32], scratch: &mut [f32], out: &mut [f32]) {
        self.multiply_with(Isa::best(), first, x, scratch, out);
    }

    fn multiply_with(&self, isa: Isa, first: usize, x: &[f32], scratch: &mut [f32], out: &mut [f32]) {
        let pieces = parallel::pieces(out.len().saturating_mul(self.columns));
        let x = &x[..self.columns];
        let arranged = Arranged::new(x, &mut scratch[..self.scratch_len()]);
        parallel::parts(out, ROW_UNIT, pieces, &|start, out| {
            let first = first + start;
            match self.codes {
                Codes::Bytes(codes, factors) => bytes(isa, (codes, factors), first, x, out),
                Codes::Palette(codes, tables, rows) => {
                    isa.run(Sums { x: arranged, first, out, of: Looked { codes, tables, rows } });
                }
                Codes::Nibbles(codes, factors) => match factors.values.slice::<f16>() {
                    Ok(values) => {
                        isa.run(Sums { x: arranged, first, out, of: Scaled { codes, factors, values } })
                    }
                    Err(_) => {
                        let values: &[f32] = factors.values.slice().unwrap_or(&[]);
                        isa.run(Sums { x: arranged, first, out, of: Scaled { codes, factors, values } });
                    }
                },
            }
        });
    }
}

fn bytes(isa: Isa, (codes, factors): (&[i8], Factors<'_>), first: usize, x: &[f32], out: &mut [f32]) {
    let columns = x.len();
    let rows = Matrix::row_major(&codes[first * columns..], columns);
    let count = out.len();
    gemv::dots(isa, columns, Matrix::row_major(x, columns), rows, Grid::new(out, count), 1);
    for (r, out) in out.iter_mut().enumerate() {
        let (at, mut factor) = ((first + r) / factors.rows, [0.0]);
        to_f32(&factors.values, at..at + 1, &mut factor);
        *out *= factor[0];
    }
}

/// A row in the order in which elements of four bits are multiplied, and the sums of its groups.
#[derive(Clone, Copy)]
struct Arranged<'a> {
    groups: &'a [[f32; GROUP]],
    sums: &'a [f32],
}

impl<'a> Arranged<'a> {
    /// Nothing if there is no room, for codes that need none of it.
    fn new(x: &[f32], memory: &'a mut [f32]) -> Arranged<'a> {
        if memory.is_empty() {
            return Arranged { groups: &[], sums: &[] };
        }
        let (groups, sums) = memory.split_at_mut(x.len());
        let (groups, _) = groups.as_chunks_mut::<GROUP>();
        for ((group, sum), x) in groups.iter_mut().zip(&mut *sums).zip(x.as_chunks::<GROUP>().0) {
            *group = std::array::from_fn(|i| x[i % WIDE * 2 + i / WIDE]);
            *sum = x.iter().sum();
        }
        Arranged { groups, sums }
    }
}

/// The codes of a group.
#[inline(always)]
fn group(codes: &[u8], at: usize) -> &[u8; WIDE] {
    &codes.as_chunks::<WIDE>().0[at]
}

/// A way to multiply rows of four bits.
trait Weighted: Copy {
    /// The sums of products of `x` with `N` rows from `row` on.
    fn sums<S: Simd, const N: usize>(self, s: S, row: usize, x: Arranged<'_>) -> [f32; N];
}

#[derive(Clone, Copy)]
struct Scaled<'a, F> {
    codes: &'a [u8],
    factors: Factors<'a>,
    values: &'a [F],
}

/// Flips the sign of each four bits, which makes them too large by eight.
#[inline(always)]
fn unsigned(codes: &[u8; WIDE]) -> [u8; WIDE] {
    codes.map(|byte| byte ^ 0x88)
}

impl<F: Load> Weighted for Scaled<'_, F> {
    #[inline(always)]
    fn sums<S: Simd, const N: usize>(self, s: S, row: usize, x: Arranged<'_>) -> [f32; N] {
        let (count, per_block) = (x.groups.len(), self.factors.block / GROUP);
        let blocks = count / per_block;
        let mut totals = [s.splat_wide(0.0); N];
        let mut excess = [0.0; N];
        for first in (0..blocks).step_by(LANES) {
            let here = LANES.min(blocks - first);
            let mut factors = [[0.0; LANES]; N];
            for r in 0..N {
                let at = (row + r) / self.factors.rows * blocks + first;
                s.store(F::load_some(s, &self.values[at..at + here]), &mut factors[r]);
            }
            for b in 0..here {
                let mut sums = [s.splat_wide(0.0); N];
                let mut plain = 0.0;
                for g in (first + b) * per_block..(first + b + 1) * per_block {
                    let (low, _) = x.groups[g].as_chunks::<WIDE>();
                    let lanes = [s.load_wide(&low[0]), s.load_wide(&low[1])];
                    plain += x.sums[g];
                    for r in 0..N {
                        let weights = s.load_u4_wide(&unsigned(group(self.codes, (row + r) * count + g)));
                        sums[r] = s.mul_add_wide(lanes[0], weights[0], sums[r]);
                        sums[r] = s.mul_add_wide(lanes[1], weights[1], sums[r]);
                    }
                }
                for r in 0..N {
                    totals[r] = s.mul_add_wide(sums[r], s.splat_wide(factors[r][b]), totals[r]);
                    excess[r] += 8.0 * plain * factors[r][b];
                }
            }
        }
        let mut out = [0.0; N];
        for r in 0..N {
            out[r] = s.reduce_add(s.fold_wide(totals[r])) - excess[r];
        }
        out
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
    fn sums<S: Simd, const N: usize>(self, s: S, row: usize, x: Arranged<'_>) -> [f32; N] {
        let mut totals = [[s.splat_wide(0.0); 2]; N];
        let mut tables = [s.splat_wide(0.0); N];
        for r in 0..N {
            tables[r] = s.load_wide(&self.tables.as_chunks::<WIDE>().0[(row + r) / self.rows]);
        }
        for (g, lanes) in x.groups.iter().enumerate() {
            let (low, _) = lanes.as_chunks::<WIDE>();
            let lanes = [s.load_wide(&low[0]), s.load_wide(&low[1])];
            for r in 0..N {
                let weights = s.look_up_wide(tables[r], group(self.codes, (row + r) * x.groups.len() + g));
                totals[r][0] = s.mul_add_wide(lanes[0], weights[0], totals[r][0]);
                totals[r][1] = s.mul_add_wide(lanes[1], weights[1], totals[r][1]);
            }
        }
        let mut out = [0.0; N];
        for r in 0..N {
            out[r] = s.reduce_add(s.fold_wide(s.add_wide(totals[r][0], totals[r][1])));
        }
        out
    }
}

struct Sums<'a, W> {
    x: Arranged<'a>,
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
            *group = of.sums::<S, ROWS>(s, row, x);
            row += ROWS;
        }
        for out in rest {
            [*out] = of.sums::<S, 1>(s, row, x);
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
            // Products with numbers eight too large are taken back in the end.
            assert!((f64::from(found) - sum).abs() <= 1e-5 * size, "row {r}: {found} is not {sum}");
        }
    }

    /// The product on every instruction set, from the third row on.
    fn product(packed: &PackedRows<'_>, x: &[f32], rows: usize) -> Vec<f32> {
        assert!(packed.is_regular());
        let mut out = vec![f32::NAN; rows];
        let mut scratch = vec![f32::NAN; packed.scratch_len()];
        packed.multiply(2, x, &mut scratch, &mut out);
        for isa in Isa::all() {
            let mut again = vec![f32::NAN; rows];
            packed.multiply_with(isa, 2, x, &mut scratch, &mut again);
            assert_eq!(again, out, "{isa:?}");
        }
        out
    }

    #[test]
    fn integers_are_scaled_by_block() {
        let (rows, columns) = (13, 96);
        let x: Vec<f32> = (0..columns).map(|i| (i * 7 % 23) as f32 / 23.0 - 0.4).collect();
        let code = |i: usize| (i * 37 % 251) as u8;
        for (block, shared) in [(96, 1), (96, 5), (32, 1), (32, 3)] {
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
                let by_byte = PackedRows { columns, codes: Codes::Bytes(&bytes, factors) };
                assert_eq!(by_byte.is_regular(), block == columns);
                if block == columns {
                    let found = product(&by_byte, &x, rows - 2);
                    assert_close(&found, |r, c| f32::from(bytes[(r + 2) * columns + c]) * factor(r, c), &x);
                }
                let found =
                    product(&PackedRows { columns, codes: Codes::Nibbles(&nibbles, factors) }, &x, rows - 2);
                assert_close(&found, |r, c| signed((r + 2) * columns + c) * factor(r, c), &x);
            }
        }
    }

    #[test]
    fn indices_are_looked_up_in_the_table_of_their_rows() {
        let (rows, columns) = (12, 64);
        let x: Vec<f32> = (0..columns).map(|i| (i * 5 % 17) as f32 / 17.0 - 0.5).collect();
        let tables: Vec<f32> = (0..3 * 16).map(|i| (i * 29 % 31) as f32 / 7.0 - 2.0).collect();
        let code = |i: usize| (i * 13 % 16) as u8;
        let codes = packed::pack((0..rows * columns).map(code), 4);
        let found = product(&PackedRows { columns, codes: Codes::Palette(&codes, &tables, 4) }, &x, rows - 2);
        assert_close(&found, |r, c| tables[(r + 2) / 4 * 16 + usize::from(code((r + 2) * columns + c))], &x);
    }

    #[test]
    fn what_is_no_whole_group_is_not_regular() {
        let values = TensorView::new(DType::F32, &[1], &[0; 4]).unwrap();
        let rows = |columns, block| PackedRows {
            columns,
            codes: Codes::Nibbles(&[], Factors { rows: 1, block, values }),
        };
        assert!(rows(64, 32).is_regular());
        assert!(!rows(48, 48).is_regular() && !rows(64, 16).is_regular() && !rows(0, 32).is_regular());
    }
}
