//! Products of one row with compressed weights, which are read as they are stored and never expanded.
//!
//! Weights are integers, or integers named by codes, and so is the row they meet: its elements are fixed-point numbers
//! that share a scale in blocks. Products are summed exactly within a block, and the sums of blocks in f32. A row
//! with an element that is not finite gives NaN.

use half::f16;

use super::fixed_point::{FixedQuads, FixedRow, LARGEST_NAMED, fix, row_len};
use super::parallel;
use super::simd::{BLOCK, Isa, LANES, Load, Op, QUAD, Quad, Simd, SplitQuad, WIDE};
use crate::tensor::TensorView;

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
        let whole = self.columns > 0 && self.columns.is_multiple_of(BLOCK);
        whole
            && match self.codes {
                Codes::Bytes(_, factors) => factors.block == self.columns && typed(factors),
                Codes::Nibbles(_, factors) => {
                    let whole = factors.block > 0 && self.columns.is_multiple_of(factors.block);
                    whole && factors.block.is_multiple_of(BLOCK) && typed(factors) && self.columns >= QUAD * BLOCK
                }
                Codes::Palette(..) => self.columns >= QUAD * BLOCK,
            }
    }

    /// Elements of scratch memory that [`PackedRows::multiply`] needs.
    pub fn scratch_len(&self) -> usize {
        row_len(self.columns)
    }

    /// `out[r]` is the sum of products of `x` with row `first + r`.
    ///
    /// # Panics
    /// If rows are not regular, there are fewer than `first` and the outputs imply, or scratch memory is too short.
    pub fn multiply(&self, first: usize, x: &[f32], scratch: &mut [f32], out: &mut [f32]) {
        self.multiply_with(Isa::best(), first, x, scratch, out);
    }

    fn multiply_with(&self, isa: Isa, first: usize, x: &[f32], scratch: &mut [f32], out: &mut [f32]) {
        let pieces = parallel::pieces(out.len().saturating_mul(self.columns));
        let x = &x[..self.columns];
        match self.codes {
            Codes::Bytes(codes, factors) => {
                let (x, codes) = (FixedRow::new(isa, x, scratch), codes.as_chunks().0);
                parallel::parts(out, ROW_UNIT, pieces, &|start, out| {
                    isa.run(ByteSums { x, codes, factors, first: first + start, out });
                });
            }
            Codes::Nibbles(codes, factors) => {
                let (x, codes) = (FixedQuads::new(isa, x, scratch), codes.as_chunks().0);
                parallel::parts(out, ROW_UNIT, pieces, &|start, out| {
                    isa.run(NibbleSums { x, codes, factors, first: first + start, out });
                });
            }
            Codes::Palette(codes, tables, rows) => {
                let (x, codes) = (FixedQuads::new(isa, x, scratch), codes.as_chunks().0);
                parallel::parts(out, ROW_UNIT, pieces, &|start, out| {
                    isa.run(NamedSums { x, codes, tables, rows, first: first + start, out });
                });
            }
        }
    }
}

/// Rows of weights that can be multiplied one by one.
trait Rows<S: Simd> {
    /// Products of a row, lane by lane.
    fn lanes(&self, s: S, row: usize) -> S::V;
}

/// The sums of the rows from `first` on.
#[inline(always)]
fn sum_rows<S: Simd>(s: S, rows: &impl Rows<S>, first: usize, out: &mut [f32]) {
    let (groups, rest) = out.as_chunks_mut::<LANES>();
    let mut row = first;
    for group in groups {
        let mut lanes = [s.splat(0.0); LANES];
        for (r, lanes) in lanes.iter_mut().enumerate() {
            *lanes = rows.lanes(s, row + r);
        }
        s.store(s.reduce_add_each(lanes), group);
        row += LANES;
    }
    for out in rest {
        *out = s.reduce_add(rows.lanes(s, row));
        row += 1;
    }
}

struct ByteSums<'a> {
    x: FixedRow<'a>,
    codes: &'a [[i8; BLOCK]],
    factors: Factors<'a>,
    first: usize,
    out: &'a mut [f32],
}

impl Op for ByteSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ByteSums { x, codes, factors, first, out } = self;
        sum_rows(s, &ByteRows { codes, x }, first, out);
        match factors.values.slice::<f16>() {
            Ok(values) => scale_rows(s, factors.rows, values, first, out),
            Err(_) => scale_rows::<S, f32>(s, factors.rows, factors.values.slice().unwrap_or(&[]), first, out),
        }
    }
}

/// Multiplies the sums of rows by the factors of those.
#[inline(always)]
fn scale_rows<S: Simd, F: Load>(s: S, rows: usize, values: &[F], first: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_mut(LANES).enumerate() {
        let row = first + i * LANES;
        let mut lanes = [0.0; LANES];
        if rows == 1 {
            s.store(F::load_some(s, &values[row..]), &mut lanes);
        } else {
            for (r, lane) in lanes.iter_mut().enumerate() {
                *lane = values.get((row + r) / rows).map_or(0.0, |value| value.widen());
            }
        }
        out.iter_mut().zip(lanes).for_each(|(out, factor)| *out *= factor);
    }
}

/// Blocks that are summed side by side.
const WAYS: usize = 2;

struct ByteRows<'a> {
    codes: &'a [[i8; BLOCK]],
    x: FixedRow<'a>,
}

impl<S: Simd> Rows<S> for ByteRows<'_> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let count = self.x.blocks.len();
        let (code_groups, code_rest) = self.codes[row * count..][..count].as_chunks::<WAYS>();
        let (x_groups, x_rest) = self.x.blocks.as_chunks::<WAYS>();
        let (scale_groups, scale_rest) = self.x.scales.as_flattened()[..count].as_chunks::<WAYS>();
        let mut sums = [s.splat(0.0); WAYS];
        for ((codes, x), scales) in code_groups.iter().zip(x_groups).zip(scale_groups) {
            for i in 0..WAYS {
                sums[i] = s.mul_add(s.dot_bytes(&codes[i], &x[i]), s.splat(scales[i]), sums[i]);
            }
        }
        for ((code, x), &scale) in code_rest.iter().zip(x_rest).zip(scale_rest) {
            sums[0] = s.mul_add(s.dot_bytes(code, x), s.splat(scale), sums[0]);
        }
        s.add(sums[0], sums[1])
    }
}

struct NibbleSums<'a> {
    x: FixedQuads<'a, SplitQuad>,
    codes: &'a [[u8; WIDE]],
    factors: Factors<'a>,
    first: usize,
    out: &'a mut [f32],
}

impl Op for NibbleSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let NibbleSums { x, codes, factors, first, out } = self;
        let (rows, each) = (factors.rows, factors.block / BLOCK);
        let count = x.blocks / each;
        match factors.values.slice::<f16>() {
            Ok(values) => sum_rows(s, &NibbleRows { codes, values, rows, each, count, x }, first, out),
            Err(_) => {
                let values: &[f32] = factors.values.slice().unwrap_or(&[]);
                sum_rows(s, &NibbleRows { codes, values, rows, each, count, x }, first, out);
            }
        }
    }
}

/// Rows of four bits with factors.
struct NibbleRows<'a, F> {
    codes: &'a [[u8; WIDE]],
    values: &'a [F],
    /// Rows that share factors.
    rows: usize,
    /// Blocks that share a factor.
    each: usize,
    /// Factors of a row.
    count: usize,
    x: FixedQuads<'a, SplitQuad>,
}

impl<S: Simd, F: Load> Rows<S> for NibbleRows<'_, F> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let codes = &self.codes[row * self.x.blocks..][..self.x.blocks];
        // Divisions are slow beside the products of a row.
        let shared = if self.rows == 1 { row } else { row / self.rows };
        let values = &self.values[shared * self.count..][..self.count];
        let mut sums = s.splat_wide(0.0);
        for (i, (codes, x)) in codes.as_chunks().0.iter().zip(self.x.quads).enumerate() {
            sums = Self::add(s, codes, x, &self.factors(values, i * QUAD), sums);
        }
        if let Some((codes, x)) = codes.last_chunk().zip(self.x.rest()) {
            sums = Self::add(s, codes, x, &self.factors(values, self.x.blocks - QUAD), sums);
        }
        s.fold_wide(sums)
    }
}

impl<F: Load> NibbleRows<'_, F> {
    #[inline(always)]
    fn add<S: Simd>(s: S, codes: &[[u8; WIDE]; QUAD], x: &SplitQuad, factors: &[F; QUAD], sums: S::W) -> S::W {
        let factors = s.mul_wide(F::spread(s, factors), s.load_wide(&x.scales));
        s.mul_add_wide(s.dot_nibbles(codes, x), factors, sums)
    }

    /// The factors of four blocks of a row.
    #[inline(always)]
    fn factors(&self, values: &[F], first: usize) -> [F; QUAD] {
        let mut factors = [F::zeroed(); QUAD];
        if self.each == 1 {
            factors.copy_from_slice(&values[first..first + QUAD]);
        } else {
            for (b, factor) in factors.iter_mut().enumerate() {
                *factor = values[(first + b) / self.each];
            }
        }
        factors
    }
}

struct NamedSums<'a> {
    x: FixedQuads<'a, Quad>,
    codes: &'a [[u8; WIDE]],
    tables: &'a [f32],
    /// Rows that share a table.
    rows: usize,
    first: usize,
    out: &'a mut [f32],
}

impl Op for NamedSums<'_> {
    type Output = ();

    /// Table by table.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let NamedSums { x, codes, tables, rows, first, mut out } = self;
        let mut row = first;
        while !out.is_empty() {
            let (here, rest) = out.split_at_mut((rows - row % rows).min(out.len()));
            let mut integers = [0; WIDE];
            let scale = fix(&tables.as_chunks::<WIDE>().0[row / rows], &mut integers, LARGEST_NAMED);
            sum_rows(s, &NamedRows { table: s.table(&integers), codes, x }, row, here);
            here.iter_mut().for_each(|sum| *sum *= scale);
            row += here.len();
            out = rest;
        }
    }
}

/// Rows of codes of four bits with the numbers they name.
struct NamedRows<'a, S: Simd> {
    table: S::Table,
    codes: &'a [[u8; WIDE]],
    x: FixedQuads<'a, Quad>,
}

impl<S: Simd> Rows<S> for NamedRows<'_, S> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let codes = &self.codes[row * self.x.blocks..][..self.x.blocks];
        let mut sums = s.splat_wide(0.0);
        for (codes, x) in codes.as_chunks().0.iter().zip(self.x.quads) {
            sums = s.mul_add_wide(s.dot_named(codes, self.table, x), s.load_wide(&x.scales), sums);
        }
        if let Some((codes, x)) = codes.last_chunk().zip(self.x.rest()) {
            sums = s.mul_add_wide(s.dot_named(codes, self.table, x), s.load_wide(&x.scales), sums);
        }
        s.fold_wide(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, packed};

    /// No element of `x` is off by more than a 32,766th of the largest, and no weight of a table by more than a 16,382th of
    /// the table's largest, if there is one.
    fn assert_close(found: &[f32], weights: impl Fn(usize, usize) -> f32, x: &[f32], table: f32) {
        let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (r, &found) in found.iter().enumerate() {
            let (mut sum, mut bound) = (0.0, 0.0);
            for (c, &x) in x.iter().enumerate() {
                let w = weights(r, c);
                sum += f64::from(x) * f64::from(w);
                bound += f64::from(w.abs() * largest + x.abs() * table * 2.0) / 32_766.0
                    + f64::from((x * w).abs()) * 2e-6;
            }
            assert!((f64::from(found) - sum).abs() <= bound, "row {r}: {found} is not {sum} within {bound}");
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
        let (rows, columns) = (13, 320);
        let x: Vec<f32> = (0..columns).map(|i| (i * 7 % 23) as f32 / 23.0 - 0.4).collect();
        let code = |i: usize| (i * 37 % 251) as u8;
        for (block, shared) in [(320, 1), (320, 5), (32, 1), (32, 3), (64, 1)] {
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
                    assert_close(
                        &found,
                        |r, c| f32::from(bytes[(r + 2) * columns + c]) * factor(r, c),
                        &x,
                        0.0,
                    );
                }
                let found =
                    product(&PackedRows { columns, codes: Codes::Nibbles(&nibbles, factors) }, &x, rows - 2);
                assert_close(&found, |r, c| signed((r + 2) * columns + c) * factor(r, c), &x, 0.0);
            }
        }
    }

    #[test]
    fn indices_are_looked_up_in_the_table_of_their_rows() {
        let (rows, columns) = (12, 160);
        let x: Vec<f32> = (0..columns).map(|i| (i * 5 % 17) as f32 / 17.0 - 0.5).collect();
        let tables: Vec<f32> = (0..3 * 16).map(|i| (i * 29 % 31) as f32 / 7.0 - 2.0).collect();
        let code = |i: usize| (i * 13 % 16) as u8;
        let codes = packed::pack((0..rows * columns).map(code), 4);
        let found = product(&PackedRows { columns, codes: Codes::Palette(&codes, &tables, 4) }, &x, rows - 2);
        let weight = |r: usize, c: usize| tables[(r + 2) / 4 * 16 + usize::from(code((r + 2) * columns + c))];
        assert_close(&found, weight, &x, 2.0 + 30.0 / 7.0);
    }

    #[test]
    fn what_is_not_finite_shows() {
        let tables = [1.0; WIDE];
        let packed = PackedRows { columns: 160, codes: Codes::Palette(&[0; 160], &tables, 2) };
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [0.5; 160];
            x[40] = bad;
            let mut out = [0.0; 2];
            packed.multiply(0, &x, &mut vec![0.0; packed.scratch_len()], &mut out);
            assert!(out.iter().all(|sum| sum.is_nan()));
        }
    }

    #[test]
    fn what_is_no_whole_group_is_not_regular() {
        let values = TensorView::new(DType::F32, &[1], &[0; 4]).unwrap();
        let rows = |columns, block| PackedRows {
            columns,
            codes: Codes::Nibbles(&[], Factors { rows: 1, block, values }),
        };
        assert!(rows(160, 32).is_regular() && rows(128, 128).is_regular());
        assert!(!rows(144, 48).is_regular() && !rows(160, 16).is_regular() && !rows(0, 32).is_regular());
        assert!(!rows(96, 32).is_regular(), "fewer than four blocks");
    }
}
