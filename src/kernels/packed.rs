//! Products of one row with compressed weights, which are read as they are stored and never expanded.
//!
//! Weights are integers, or integers named by codes, and so is the row they meet: its elements are fixed-point numbers
//! that share a scale in blocks. Products are summed exactly within a block, and the sums of blocks in f32. A row
//! with an element that is not finite gives NaN.

use std::marker::PhantomData;

use half::f16;

use super::fixed_point::{FixedRow, fix, row_len};
use super::parallel;
use super::simd::{BLOCK, Isa, LANES, Load, Op, Simd, WIDE, named_order, signed_order};
use crate::tensor::TensorView;

/// Blocks that are summed side by side.
const WAYS: usize = 2;
/// Rows below which work is not divided further.
const ROW_UNIT: usize = 8;
/// How far ahead of their use weights are asked for, in bytes.
const AHEAD: usize = 2048;

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
                    whole && factors.block.is_multiple_of(BLOCK) && typed(factors)
                }
                Codes::Palette(..) => true,
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
        let x = self.fixed(isa, &x[..self.columns], scratch);
        parallel::parts(out, ROW_UNIT, pieces, &|start, out| {
            isa.run(Sums { x, codes: self.codes, first: first + start, out });
        });
    }

    /// A row in the order in which it meets these weights.
    fn fixed<'m>(&self, isa: Isa, x: &[f32], memory: &'m mut [f32]) -> FixedRow<'m> {
        match self.codes {
            Codes::Bytes(..) => FixedRow::new(isa, x, |i| i, memory),
            Codes::Nibbles(..) => FixedRow::new(isa, x, signed_order, memory),
            Codes::Palette(..) => FixedRow::new(isa, x, named_order, memory),
        }
    }
}

struct Sums<'a> {
    x: FixedRow<'a>,
    codes: Codes<'a>,
    first: usize,
    out: &'a mut [f32],
}

impl Op for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Sums { x, codes, first, out } = self;
        match codes {
            Codes::Bytes(codes, factors) => match factors.values.slice::<f16>() {
                Ok(values) => bytes(s, codes, (factors, values), x, first, out),
                Err(_) => {
                    bytes(s, codes, (factors, factors.values.slice::<f32>().unwrap_or(&[])), x, first, out);
                }
            },
            Codes::Nibbles(codes, factors) => match factors.values.slice::<f16>() {
                Ok(values) => each(s, &Scaled { codes: codes.as_chunks().0, factors, values }, x, first, out),
                Err(_) => {
                    let values: &[f32] = factors.values.slice().unwrap_or(&[]);
                    each(s, &Scaled { codes: codes.as_chunks().0, factors, values }, x, first, out);
                }
            },
            Codes::Palette(codes, tables, rows) => looked_up(s, codes, (tables, rows), x, first, out),
        }
    }
}

/// Rows of weights that can be multiplied one by one.
trait Rows<S: Simd> {
    /// Products of a row with `x`, lane by lane.
    fn lanes(&self, s: S, row: usize, x: FixedRow<'_>) -> S::V;
}

/// The sums of the rows from `first` on.
#[inline(always)]
fn each<S: Simd>(s: S, rows: &impl Rows<S>, x: FixedRow<'_>, first: usize, out: &mut [f32]) {
    let (groups, rest) = out.as_chunks_mut::<LANES>();
    let mut row = first;
    for group in groups {
        let mut lanes = [s.splat(0.0); LANES];
        for (r, lanes) in lanes.iter_mut().enumerate() {
            *lanes = rows.lanes(s, row + r, x);
        }
        s.store(s.reduce_add_each(lanes), group);
        row += LANES;
    }
    for out in rest {
        *out = s.reduce_add(rows.lanes(s, row, x));
        row += 1;
    }
}

/// How a block of codes is multiplied.
trait Codec<S: Simd>: Copy {
    /// The codes of a block.
    type Code;
    fn dot(self, s: S, code: &Self::Code, x: &[i16; BLOCK]) -> S::V;
}

#[derive(Clone, Copy)]
struct ByteCodes;

impl<S: Simd> Codec<S> for ByteCodes {
    type Code = [i8; BLOCK];

    #[inline(always)]
    fn dot(self, s: S, code: &[i8; BLOCK], x: &[i16; BLOCK]) -> S::V {
        s.dot_bytes(code, x)
    }
}

#[derive(Clone, Copy)]
struct NibbleCodes;

impl<S: Simd> Codec<S> for NibbleCodes {
    type Code = [u8; WIDE];

    #[inline(always)]
    fn dot(self, s: S, code: &[u8; WIDE], x: &[i16; BLOCK]) -> S::V {
        s.dot_nibbles(code, x)
    }
}

/// Codes of four bits with the numbers they name.
#[derive(Clone, Copy)]
struct NamedCodes<S: Simd>(S::Table);

impl<S: Simd> Codec<S> for NamedCodes<S> {
    type Code = [u8; WIDE];

    #[inline(always)]
    fn dot(self, s: S, code: &[u8; WIDE], x: &[i16; BLOCK]) -> S::V {
        s.dot_named(code, self.0, x)
    }
}

/// Adds products of blocks, each times its factor, lane by lane.
#[inline(always)]
fn add_blocks<S: Simd, C: Codec<S>>(
    s: S,
    codec: C,
    codes: &[C::Code],
    x: &[[i16; BLOCK]],
    factors: &[f32],
    sums: &mut [S::V; WAYS],
) {
    let (code_groups, code_rest) = codes.as_chunks::<WAYS>();
    let (x_groups, x_rest) = x.as_chunks::<WAYS>();
    let (factor_groups, factor_rest) = factors[..codes.len()].as_chunks::<WAYS>();
    for ((codes, x), factors) in code_groups.iter().zip(x_groups).zip(factor_groups) {
        s.prefetch_behind(codes, AHEAD);
        for i in 0..WAYS {
            sums[i] = s.mul_add(codec.dot(s, &codes[i], &x[i]), s.splat(factors[i]), sums[i]);
        }
    }
    for ((code, x), &factor) in code_rest.iter().zip(x_rest).zip(factor_rest) {
        sums[0] = s.mul_add(codec.dot(s, code, x), s.splat(factor), sums[0]);
    }
}

/// Rows without factors of their own.
struct Plain<'a, S: Simd, C: Codec<S>> {
    codec: C,
    codes: &'a [C::Code],
    set: PhantomData<S>,
}

impl<S: Simd, C: Codec<S>> Rows<S> for Plain<'_, S, C> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize, x: FixedRow<'_>) -> S::V {
        let count = x.blocks.len();
        let codes = &self.codes[row * count..][..count];
        let mut sums = [s.splat(0.0); WAYS];
        add_blocks(s, self.codec, codes, x.blocks, x.scales.as_flattened(), &mut sums);
        s.add(sums[0], sums[1])
    }
}

#[inline(always)]
fn bytes<S: Simd, F: Load>(
    s: S,
    codes: &[i8],
    (factors, values): (Factors<'_>, &[F]),
    x: FixedRow<'_>,
    first: usize,
    out: &mut [f32],
) {
    each(s, &Plain { codec: ByteCodes, codes: codes.as_chunks().0, set: PhantomData }, x, first, out);
    for (i, out) in out.chunks_mut(LANES).enumerate() {
        let row = first + i * LANES;
        let mut lanes = [0.0; LANES];
        if factors.rows == 1 {
            s.store(F::load_some(s, &values[row..]), &mut lanes);
        } else {
            let of = |r: usize| values.get((row + r) / factors.rows).map_or(0.0, |value| value.widen());
            lanes = std::array::from_fn(of);
        }
        out.iter_mut().zip(lanes).for_each(|(out, factor)| *out *= factor);
    }
}

/// Rows of four bits with a factor for each block, or for several.
struct Scaled<'a, F> {
    codes: &'a [[u8; WIDE]],
    factors: Factors<'a>,
    values: &'a [F],
}

impl<S: Simd, F: Load> Rows<S> for Scaled<'_, F> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize, x: FixedRow<'_>) -> S::V {
        let (count, each) = (x.blocks.len(), self.factors.block / BLOCK);
        let codes = &self.codes[row * count..][..count];
        let values = &self.values[row / self.factors.rows * (count / each)..];
        let mut sums = [s.splat(0.0); WAYS];
        let groups = codes.chunks(LANES).zip(x.blocks.chunks(LANES)).zip(x.scales).enumerate();
        for (i, ((codes, x), scales)) in groups {
            let first = i * LANES;
            let own = if each == 1 {
                F::load_some(s, &values[first..])
            } else {
                let of = |b: usize| values.get((first + b) / each).map_or(0.0, |value| value.widen());
                s.load(&std::array::from_fn(of))
            };
            let mut factors = [0.0; LANES];
            s.store(s.mul(own, s.load(scales)), &mut factors);
            add_blocks(s, NibbleCodes, codes, x, &factors, &mut sums);
        }
        s.add(sums[0], sums[1])
    }
}

/// Table by table.
#[inline(always)]
fn looked_up<S: Simd>(
    s: S,
    codes: &[u8],
    (tables, rows): (&[f32], usize),
    x: FixedRow<'_>,
    first: usize,
    mut out: &mut [f32],
) {
    let (codes, _) = codes.as_chunks();
    let mut row = first;
    while !out.is_empty() {
        let (here, rest) = out.split_at_mut((rows - row % rows).min(out.len()));
        let mut integers = [0; WIDE];
        let scale = fix(&tables.as_chunks::<WIDE>().0[row / rows], &mut integers);
        each(s, &Plain { codec: NamedCodes::<S>(s.table(&integers)), codes, set: PhantomData }, x, row, here);
        here.iter_mut().for_each(|sum| *sum *= scale);
        row += here.len();
        out = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, packed};

    /// No element of `x` is off by more than a 32,766th of the largest, and no weight of a table by more than that of
    /// the table's largest, if there is one.
    fn assert_close(found: &[f32], weights: impl Fn(usize, usize) -> f32, x: &[f32], table: f32) {
        let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (r, &found) in found.iter().enumerate() {
            let (mut sum, mut bound) = (0.0, 0.0);
            for (c, &x) in x.iter().enumerate() {
                let w = weights(r, c);
                sum += f64::from(x) * f64::from(w);
                bound += f64::from(w.abs() * largest + x.abs() * table) / 32_766.0
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
        let (rows, columns) = (12, 64);
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
        let packed = PackedRows { columns: 64, codes: Codes::Palette(&[0; 64], &tables, 2) };
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [0.5; 64];
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
        assert!(rows(64, 32).is_regular());
        assert!(!rows(48, 48).is_regular() && !rows(64, 16).is_regular() && !rows(0, 32).is_regular());
    }
}
