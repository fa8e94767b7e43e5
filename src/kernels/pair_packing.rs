//! Packing of both operands of an integer product into pairs of 16-bit integers, block by block of 32 steps.
//!
//! ```text
//! weights, MR rows, a block                       activations, NR columns, a block
//!   row 0   w[0]w[1]  w[2]w[3] .. w[30]w[31]        x[0]x[1]    of each column
//!   row 1   ..                                      x[2]x[3]    of each column
//!   ..                                              ..
//!   scale and shift of each row                     x[30]x[31]  of each column
//!                                                   scale       of each column
//!                                                   -(sum of x) of each column
//! ```
//!
//! A word holds a pair, the first integer in its lower half. The micro-kernel broadcasts words of weights and meets them with
//! those of sixteen columns at a time. Columns of activations are quantized as `activation_quant` does it. What lies beyond the
//! edge of a matrix is zero.

use std::ops::Range;

use half::f16;

use super::activation_quant::{INTEGER_MAX, ROUND_MAGIC, VANISHING};
use super::block_shift::Shifts;
use super::gemm::Matrix;
use super::quantized_gemv::SCALES;
use super::simd::{BLOCK, LANES, Load, SIGNED, Simd, WIDE};
use super::weight_gemv::{Scales, WeightRows, WeightStorage};

/// Pairs of a block.
pub(super) const PAIRS: usize = BLOCK / 2;
/// Lines of a block of activations: its pairs, scales, negated sums.
pub(super) const LINES: usize = PAIRS + 2;

/// A block of `ROWS` rows of weights.
pub(super) type WeightBlock<const ROWS: usize> = [[i32; PAIRS]; ROWS];
/// What an integer of a row stands for in a block, and what is subtracted from the integers before.
pub(super) type RowFactors<const ROWS: usize> = [[f32; 2]; ROWS];
/// A block of columns of activations. The last two lines are f32.
pub(super) type ActivationBlock<const COLUMNS: usize> = [[i32; COLUMNS]; LINES];

/// Rows of integers with scales, as they are stored.
#[derive(Clone, Copy)]
pub(super) struct IntegerRows<'a> {
    codes: Codes<'a>,
    scales: Scales<'a>,
    shifts: Shifts<'a>,
    /// Blocks of a row.
    pub(super) blocks: usize,
}

#[derive(Clone, Copy)]
enum Codes<'a> {
    Bytes(&'a [[i8; BLOCK]]),
    /// Two to a byte; what inverts their sign, if they have one.
    Nibbles(&'a [[u8; WIDE]], u8),
}

impl<'a> IntegerRows<'a> {
    /// The rows of a matrix, if they are of integers.
    pub(super) fn of(matrix: WeightRows<'a>) -> Option<IntegerRows<'a>> {
        if !matrix.is_regular() {
            return None;
        }
        let blocks = matrix.columns / BLOCK;
        match matrix.storage {
            WeightStorage::F16(_) | WeightStorage::Lut4(..) => None,
            WeightStorage::Int8(codes, scales) => {
                let codes = Codes::Bytes(codes.as_chunks().0);
                Some(IntegerRows { codes, scales, shifts: Shifts::Same(0.0), blocks })
            }
            WeightStorage::Int4(codes, scales) => {
                let flip = if codes.is_signed { SIGNED } else { 0 };
                let shifts = Shifts::of(codes)?;
                let codes = Codes::Nibbles(codes.bytes.as_chunks().0, flip);
                Some(IntegerRows { codes, scales, shifts, blocks })
            }
        }
    }

    /// Whether anything is subtracted from the integers.
    pub(super) fn are_shifted(&self) -> bool {
        self.shifts.are_some()
    }

    /// Packs `rows`, `ROWS` at a time, all blocks of the first before those of the next.
    #[inline(always)]
    pub(super) fn pack<S: Simd, const ROWS: usize>(
        &self,
        s: S,
        rows: Range<usize>,
        blocks: &mut [WeightBlock<ROWS>],
        factors: &mut [RowFactors<ROWS>],
    ) {
        let panels = blocks.chunks_exact_mut(self.blocks).zip(factors.chunks_exact_mut(self.blocks));
        for (first, (blocks, factors)) in (rows.start..).step_by(ROWS).zip(panels) {
            for r in 0..ROWS {
                if first + r < rows.end {
                    self.pack_codes(first + r, r, blocks);
                    self.pack_factors(s, first + r, r, factors);
                } else {
                    blocks.iter_mut().for_each(|block| block[r] = [0; PAIRS]);
                    factors.iter_mut().for_each(|factors| factors[r] = [0.0; 2]);
                }
            }
        }
    }

    #[inline(always)]
    fn pack_codes<const ROWS: usize>(&self, row: usize, r: usize, blocks: &mut [WeightBlock<ROWS>]) {
        match self.codes {
            Codes::Bytes(codes) => {
                for (block, codes) in blocks.iter_mut().zip(&codes[row * self.blocks..]) {
                    let mut integers = [0i16; BLOCK];
                    integers.iter_mut().zip(codes).for_each(|(integer, &code)| *integer = code.into());
                    block[r] = bytemuck::cast(integers);
                }
            }
            Codes::Nibbles(codes, flip) => {
                for (block, codes) in blocks.iter_mut().zip(&codes[row * self.blocks..]) {
                    for (pair, code) in block[r].iter_mut().zip(codes) {
                        let code = i32::from(code ^ flip);
                        *pair = (((code & 15) - 8) & 0xffff) | (((code >> 4) - 8) << 16);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn pack_factors<S: Simd, const ROWS: usize>(
        &self,
        s: S,
        row: usize,
        r: usize,
        factors: &mut [RowFactors<ROWS>],
    ) {
        let values = self.scales.values;
        match values.slice::<f16>() {
            Ok(values) => self.pack_scales(s, values, row, r, factors),
            Err(_) => self.pack_scales::<S, f32, ROWS>(s, values.slice().expect(SCALES), row, r, factors),
        }
        let (each, start) = self.scales_of(row);
        for (block, factors) in factors.iter_mut().enumerate() {
            factors[r][1] = self.shifts.at(start + block / each);
        }
    }

    #[inline(always)]
    fn pack_scales<S: Simd, F: Load, const ROWS: usize>(
        &self,
        s: S,
        values: &[F],
        row: usize,
        r: usize,
        factors: &mut [RowFactors<ROWS>],
    ) {
        let (each, start) = self.scales_of(row);
        for (value, factors) in values[start..].chunks(LANES).zip(factors.chunks_mut(each * LANES)) {
            let mut lanes = [0.0; LANES];
            s.store(F::load_some(s, value), &mut lanes);
            for (factors, scale) in factors.chunks_mut(each).zip(lanes) {
                factors.iter_mut().for_each(|factors| factors[r][0] = scale);
            }
        }
    }

    /// How many blocks of a row share a scale, and where the scales of the row begin.
    #[inline(always)]
    fn scales_of(&self, row: usize) -> (usize, usize) {
        let each = self.scales.block / BLOCK;
        (each, row / self.scales.rows * (self.blocks / each))
    }
}

/// Quantizes and packs `columns` of a row-major right operand, as panels one after the other.
#[inline(always)]
pub(super) fn pack_activations<S: Simd, const COLUMNS: usize>(
    s: S,
    x: Matrix<'_, f16>,
    columns: Range<usize>,
    blocks: usize,
    out: &mut [ActivationBlock<COLUMNS>],
) {
    for (first, panel) in columns.clone().step_by(COLUMNS).zip(out.chunks_exact_mut(blocks)) {
        for (b, block) in panel.iter_mut().enumerate() {
            for lane in (0..COLUMNS).step_by(WIDE) {
                let columns = columns.end.min(first + lane)..columns.end.min(first + lane + WIDE);
                let mut values = [[0.0; WIDE]; BLOCK];
                for (row, values) in values.iter_mut().enumerate() {
                    let line = &x.data[(b * BLOCK + row) * x.row_stride..];
                    s.store_wide(f16::load_some_wide(s, &line[columns.clone()]), values);
                }
                let lines = quantize_columns(&values);
                for (line, words) in block.iter_mut().zip(lines) {
                    line[lane..][..WIDE].copy_from_slice(&words);
                }
            }
        }
    }
}

/// The lines of a block of sixteen columns: the arithmetic of a block of activations in GEMV, column by column.
#[inline(always)]
fn quantize_columns(values: &[[f32; WIDE]; BLOCK]) -> [[i32; WIDE]; LINES] {
    // As integers, so that NaN is the largest of all.
    let mut largest = [0; WIDE];
    for values in values {
        for (most, value) in largest.iter_mut().zip(values) {
            *most = (*most).max(value.abs().to_bits());
        }
    }
    let (mut factors, mut scales) = ([0.0; WIDE], [0.0; WIDE]);
    for ((factor, scale), most) in factors.iter_mut().zip(&mut scales).zip(largest) {
        let largest = f32::from_bits(most);
        *factor = if largest > VANISHING && largest.is_finite() { INTEGER_MAX / largest } else { 0.0 };
        *scale = if largest.is_finite() { largest / INTEGER_MAX } else { f32::NAN };
    }
    let mut lines = [[0; WIDE]; LINES];
    let mut sums = [0; WIDE];
    for (line, [even, odd]) in lines.iter_mut().zip(values.as_chunks().0) {
        for i in 0..WIDE {
            // An infinite number times a factor of zero is NaN, of which nothing must be left.
            let [a, b] = [even[i], odd[i]].map(|x| (x * factors[i] + ROUND_MAGIC).to_bits().cast_signed());
            let [a, b] = if factors[i] == 0.0 { [0, 0] } else { [a << 16 >> 16, b << 16 >> 16] };
            line[i] = (a & 0xffff) | (b << 16);
            sums[i] += a + b;
        }
    }
    lines[PAIRS] = scales.map(|scale| scale.to_bits().cast_signed());
    lines[PAIRS + 1] = sums.map(|sum| (-sum as f32).to_bits().cast_signed());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Scalar;
    use crate::tensor::{DType, TensorView};
    use crate::weight_gemv::Int4Codes;

    fn halves(word: i32) -> [i32; 2] {
        [i32::from(word as i16), word >> 16]
    }

    #[test]
    fn activations_are_those_of_gemv_column_by_column() {
        let columns = 21;
        let mut x: Vec<f16> =
            (0..2 * BLOCK * columns).map(|i| f16::from_f32((i * 37 % 101) as f32 / 8.0 - 5.0)).collect();
        (x[3 * columns + 7], x[40 * columns + 20]) = (f16::INFINITY, f16::NAN);
        (0..BLOCK).for_each(|row| x[row * columns + 11] = f16::ZERO);
        let mut out = [[[0; 2 * WIDE]; LINES]; 2];
        pack_activations(Scalar, Matrix::row_major(&x, columns), 0..columns, 2, &mut out);
        for (b, block) in out.iter().enumerate() {
            for column in 0..2 * WIDE {
                let value = |row: usize| match column < columns {
                    true => x[(b * BLOCK + row) * columns + column].to_f32(),
                    false => 0.0,
                };
                let largest = (0..BLOCK).fold(0f32, |most, row| most.max(value(row).abs()));
                let scale = f32::from_bits(block[PAIRS][column].cast_unsigned());
                let is_bad = (0..BLOCK).any(|row| !value(row).is_finite());
                assert_eq!(scale.is_nan(), is_bad);
                let mut sum = 0;
                for row in 0..BLOCK {
                    let integer = halves(block[row / 2][column])[row % 2];
                    let expected =
                        if largest > 0.0 && !is_bad { value(row) / largest * INTEGER_MAX } else { 0.0 };
                    assert!((integer as f32 - expected).abs() <= 0.51, "{integer} is not {expected}");
                    sum += integer;
                }
                assert_eq!(f32::from_bits(block[PAIRS + 1][column].cast_unsigned()), -sum as f32);
            }
        }
    }

    #[test]
    fn weights_keep_their_integers_scales_and_offsets() {
        let (rows, columns) = (5, 4 * BLOCK);
        let scales: Vec<f16> = (0..rows * 2).map(|i| f16::from_f32(i as f32 + 0.5)).collect();
        let count = [scales.len()];
        let values = TensorView::new(DType::F16, &count, bytemuck::cast_slice(&scales)).unwrap();
        let offsets: Vec<u8> = (0..rows).map(|i| 0x10 + 0x22 * i as u8).collect();
        let offsets = TensorView::new(DType::U4, &count, &offsets).unwrap();
        let bytes: Vec<i8> = (0..rows * columns).map(|i| (i * 37 % 251) as u8 as i8).collect();
        let nibbles: Vec<u8> = bytes[..rows * columns / 2].iter().map(|&byte| byte as u8).collect();
        let scales = Scales { rows: 1, block: 2 * BLOCK, values };
        let unsigned = Int4Codes { bytes: &nibbles, is_signed: false, offsets: Some(offsets) };
        let signed = Int4Codes { is_signed: true, offsets: None, ..unsigned };
        let code = |i: usize| i32::from(nibbles[i / 2] >> (i % 2 * 4) & 15);
        type Weight<'a> = &'a dyn Fn(usize) -> f32;
        let cases: [(WeightStorage<'_>, bool, Weight<'_>); 3] = [
            (WeightStorage::Int8(&bytes, scales), false, &|i| f32::from(bytes[i])),
            (WeightStorage::Int4(signed, scales), false, &|i| ((code(i) ^ 8) - 8) as f32),
            (WeightStorage::Int4(unsigned, scales), true, &|i| {
                let block = i / (2 * BLOCK);
                let offset = offsets.bytes()[block / 2] >> (block % 2 * 4) & 15;
                code(i) as f32 - f32::from(offset)
            }),
        ];
        for (storage, shifted, weight) in cases {
            let matrix = IntegerRows::of(WeightRows { columns, storage }).unwrap();
            assert_eq!((matrix.blocks, matrix.are_shifted()), (4, shifted));
            let mut blocks = [[[7; PAIRS]; 3]; 2 * 4];
            let mut factors = [[[7.0; 2]; 3]; 2 * 4];
            matrix.pack(Scalar, 1..rows, &mut blocks, &mut factors);
            for (at, (block, factors)) in blocks.iter().zip(&factors).enumerate() {
                for r in 0..3 {
                    let (row, b) = (1 + at / 4 * 3 + r, at % 4);
                    let [scale, shift] = factors[r];
                    if row >= rows {
                        assert_eq!((block[r], scale, shift), ([0; PAIRS], 0.0, 0.0));
                        continue;
                    }
                    assert_eq!(scale, (row * 2 + b / 2) as f32 + 0.5);
                    for i in 0..BLOCK {
                        let found = halves(block[r][i / 2])[i % 2] as f32 - shift;
                        assert_eq!(found, weight(row * columns + b * BLOCK + i), "row {row}, block {b}");
                    }
                }
            }
        }
    }
}
