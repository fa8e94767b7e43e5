//! GEMV with weights as they are stored: one token times fp16, int8, int4 or 4-bit LUT rows.
//!
//! Decoding a token reads every weight once, so that its speed is that of memory: bytes are what counts, and compressed
//! weights are never expanded. Compressed weights are integers, or indices of integers, and so are the activations they are
//! multiplied with (`activation_quant`), unless a LUT needs f32 (`palette`). A row with an element that is not finite gives a
//! sum that is not.

use half::f16;

use super::activation_quant::{BlockActivations, QuadActivations, row_len};
use super::block_shift::Shifts;
use super::gemm::Matrix;
use super::int8_gemv::Int8Gemv;
use super::palette::Palettes;
use super::parallel;
use super::quantized_gemv::{FORMS, Int4Gemv, Lut4Gemv};
use super::row_gemv::DenseGemv;
use super::simd::{ActivationQuad, BLOCK, FloatActivationQuad, Isa, QUAD, SplitActivationQuad};
use crate::tensor::TensorView;

/// Rows below which work is not divided further: those that `row_gemv` takes at a time.
const ROW_UNIT: usize = 8;

/// A matrix of weights, by rows.
#[derive(Clone, Copy)]
pub struct WeightRows<'a> {
    /// Elements of a row.
    pub columns: usize,
    /// What is stored for each element.
    pub storage: WeightStorage<'a>,
}

/// How elements are stored.
#[derive(Clone, Copy)]
pub enum WeightStorage<'a> {
    /// fp16.
    F16(&'a [f16]),
    /// Signed bytes, with a scale for each block.
    Int8(&'a [i8], Scales<'a>),
    /// Integers of four bits, with a scale for each block.
    Int4(Int4Codes<'a>, Scales<'a>),
    /// Indices of four bits, two to a byte, low half first, into LUTs of sixteen numbers, each for so many rows.
    Lut4(&'a [u8], &'a Palettes, usize),
}

/// Integers of four bits, two to a byte, low half first.
#[derive(Clone, Copy)]
pub struct Int4Codes<'a> {
    /// The codes.
    pub bytes: &'a [u8],
    /// Whether they are in two's complement.
    pub is_signed: bool,
    /// What is subtracted from the integers of each block that has a scale: integers of the same type, fp16 or f32.
    pub offsets: Option<TensorView<'a>>,
}

/// A scale for each block of a row.
#[derive(Clone, Copy)]
pub struct Scales<'a> {
    /// Rows that share scales.
    pub rows: usize,
    /// Elements of a block, which divides a row.
    pub block: usize,
    /// fp16 or f32.
    pub values: TensorView<'a>,
}

impl WeightRows<'_> {
    /// Whether [`gemv`] can be used.
    pub fn is_regular(&self) -> bool {
        let typed =
            |scales: Scales<'_>| scales.values.slice::<f16>().is_ok() || scales.values.slice::<f32>().is_ok();
        let has_blocks = self.columns > 0 && self.columns.is_multiple_of(BLOCK);
        let has_quads = has_blocks && self.columns >= QUAD * BLOCK;
        // Scales are for some blocks of activations each.
        let scaled = |scales: Scales<'_>| {
            let whole = scales.block > 0 && self.columns.is_multiple_of(scales.block);
            whole && scales.block.is_multiple_of(BLOCK) && typed(scales)
        };
        match self.storage {
            WeightStorage::F16(_) => self.columns > 0,
            WeightStorage::Int8(_, scales) => has_blocks && scaled(scales),
            WeightStorage::Int4(codes, scales) => has_quads && scaled(scales) && Shifts::of(codes).is_some(),
            WeightStorage::Lut4(..) => has_quads,
        }
    }
}

/// Some consecutive rows of a matrix.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RowRange<'a> {
    pub matrix: WeightRows<'a>,
    pub first: usize,
    pub count: usize,
}

/// Elements of scratch memory that [`gemv`] needs for rows of so many elements.
pub fn scratch_len(columns: usize) -> usize {
    FORM_COUNT * row_len(columns)
}

/// The sums of products of `x` with every row of all parts, one part after the other.
///
/// # Panics
/// If matrices are not regular or not as wide as `x`, have fewer rows than is said, or scratch memory is too short.
pub fn gemv(x: &[f32], parts: &[RowRange<'_>], scratch: &mut [f32], out: &mut [f32]) {
    gemv_with(Isa::best(), x, parts, scratch, out);
}

/// [`gemv`] with an instruction set.
pub(super) fn gemv_with(isa: Isa, x: &[f32], parts: &[RowRange<'_>], scratch: &mut [f32], out: &mut [f32]) {
    let pieces = parallel::pieces(out.len().saturating_mul(x.len()));
    let row = ActivationForms::new(isa, x, parts, scratch);
    parallel::parts(out, ROW_UNIT, pieces, &|mut start, mut out| {
        for part in parts {
            if start < part.count {
                let (here, rest) = out.split_at_mut((part.count - start).min(out.len()));
                row.multiply_rows(isa, part.matrix.storage, part.first + start, here);
                out = rest;
            }
            start = start.saturating_sub(part.count);
        }
    });
}

/// How many forms activations can have beside their own.
const FORM_COUNT: usize = 4;

/// A row of activations in every form that its weights need.
struct ActivationForms<'a> {
    x: &'a [f32],
    blocks: Option<BlockActivations<'a>>,
    split: Option<QuadActivations<'a, SplitActivationQuad>>,
    quads: Option<QuadActivations<'a, ActivationQuad>>,
    floats: Option<QuadActivations<'a, FloatActivationQuad>>,
}

impl<'a> ActivationForms<'a> {
    fn new(isa: Isa, x: &'a [f32], parts: &[RowRange<'_>], scratch: &'a mut [f32]) -> ActivationForms<'a> {
        let has = |is: fn(&WeightStorage<'_>) -> bool| parts.iter().any(|part| is(&part.matrix.storage));
        let len = row_len(x.len());
        let (blocks, rest) = scratch.split_at_mut(len);
        let (split, rest) = rest.split_at_mut(len);
        let (quads, floats) = rest.split_at_mut(len);
        ActivationForms {
            x,
            blocks: has(|storage| matches!(storage, WeightStorage::Int8(..)))
                .then(|| BlockActivations::new(isa, x, blocks)),
            split: has(|storage| matches!(storage, WeightStorage::Int4(..)))
                .then(|| QuadActivations::new(isa, x, split)),
            quads: has(|storage| matches!(storage, WeightStorage::Lut4(_, luts, _) if luts.has_integers()))
                .then(|| QuadActivations::new(isa, x, quads)),
            floats: has(|storage| matches!(storage, WeightStorage::Lut4(_, luts, _) if luts.has_floats()))
                .then(|| QuadActivations::new(isa, x, floats)),
        }
    }

    /// The sums of products with rows from `first` on.
    fn multiply_rows(&self, isa: Isa, storage: WeightStorage<'_>, first: usize, out: &mut [f32]) {
        match storage {
            WeightStorage::F16(halves) => {
                let w = Matrix::row_major(&halves[first * self.x.len()..], self.x.len());
                isa.run(DenseGemv { x: self.x, w, out });
            }
            WeightStorage::Int8(codes, scales) => {
                let x = self.blocks.expect(FORMS);
                isa.run(Int8Gemv { x, codes: codes.as_chunks().0, scales, first, out });
            }
            WeightStorage::Int4(codes, scales) => {
                let x = self.split.expect(FORMS);
                isa.run(Int4Gemv { x, codes, scales, first, out });
            }
            WeightStorage::Lut4(codes, palettes, rows) => {
                let (quantized, floats) = (self.quads, self.floats);
                let codes = codes.as_chunks().0;
                isa.run(Lut4Gemv { quantized, floats, codes, palettes, rows, first, out });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::WIDE;
    use crate::tensor::{DType, packed};

    /// No element of `x` is off by more than a 32,766th of the largest.
    fn assert_close(found: &[f32], weights: impl Fn(usize, usize) -> f32, x: &[f32]) {
        let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (r, &found) in found.iter().enumerate() {
            let (mut sum, mut bound) = (0.0, 0.0);
            for (c, &x) in x.iter().enumerate() {
                let w = weights(r, c);
                sum += f64::from(x) * f64::from(w);
                bound += f64::from(w.abs() * largest) / 32_766.0 + f64::from((x * w).abs()) * 2e-6;
            }
            assert!((f64::from(found) - sum).abs() <= bound, "row {r}: {found} is not {sum} within {bound}");
        }
    }

    /// The product on every instruction set, from the third row on.
    fn product(matrix: WeightRows<'_>, x: &[f32], rows: usize) -> Vec<f32> {
        assert!(matrix.is_regular());
        let parts = [RowRange { matrix, first: 2, count: rows }];
        let mut out = vec![f32::NAN; rows];
        let mut scratch = vec![f32::NAN; scratch_len(x.len())];
        gemv(x, &parts, &mut scratch, &mut out);
        for isa in Isa::all() {
            let mut again = vec![f32::NAN; rows];
            gemv_with(isa, x, &parts, &mut scratch, &mut again);
            assert_eq!(again, out, "{isa:?}");
        }
        out
    }

    #[test]
    fn parts_follow_one_another_on_any_number_of_threads() {
        let columns = 160;
        let x: Vec<f32> = (0..columns).map(|i| (i * 7 % 23) as f32 / 23.0 - 0.4).collect();
        let halves: Vec<f16> =
            (0..700 * columns).map(|i| f16::from_f32((i * 29 % 31) as f32 / 31.0 - 0.5)).collect();
        let bytes: Vec<i8> = (0..300 * columns).map(|i| (i * 37 % 251) as u8 as i8).collect();
        let codes: Vec<u8> = (0..300 * columns / 2).map(|i| (i * 41 % 253) as u8).collect();
        let scales = vec![f16::from_f32(0.01); 300 * columns / BLOCK];
        let (per_row, per_block) = ([300], [scales.len()]);
        let values =
            |shape| TensorView::new(DType::F16, shape, bytemuck::cast_slice(&scales[..shape[0]])).unwrap();
        let mut tables: Vec<f32> = (0..WIDE).map(|i| i as f32 / 8.0 - 1.0).collect();
        let integers = Palettes::new(&tables);
        tables[3] = 3e4;
        let floats = Palettes::new(&tables);
        let rows = Scales { rows: 1, block: columns, values: values(&per_row) };
        let blocks = Scales { rows: 1, block: BLOCK, values: values(&per_block) };
        let int4 = Int4Codes { bytes: &codes, is_signed: true, offsets: None };
        let parts = [
            (WeightStorage::F16(&halves), 3, 650),
            (WeightStorage::Int8(&bytes, rows), 0, 300),
            (WeightStorage::Int8(&bytes, blocks), 7, 290),
            (WeightStorage::Int4(int4, blocks), 5, 211),
            (WeightStorage::Lut4(&codes, &integers, 300), 1, 1),
            (WeightStorage::Lut4(&codes, &integers, 300), 8, 270),
            (WeightStorage::Lut4(&codes, &floats, 300), 3, 250),
        ];
        let parts = parts.map(|(storage, first, count)| RowRange {
            matrix: WeightRows { columns, storage },
            first,
            count,
        });
        let mut scratch = vec![f32::NAN; scratch_len(columns)];
        let mut alone = Vec::new();
        for part in &parts {
            let mut out = vec![f32::NAN; part.count];
            gemv(&x, std::slice::from_ref(part), &mut scratch, &mut out);
            alone.extend(out);
        }
        for threads in 1..=3 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut together = vec![f32::NAN; alone.len()];
            pool.install(|| gemv(&x, &parts, &mut scratch, &mut together));
            assert_eq!(together, alone, "{threads} threads");
        }
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
                let scales = Scales { rows: shared, block, values };
                let bytes: Vec<i8> = (0..rows * columns).map(|i| code(i) as i8).collect();
                let nibbles = packed::pack((0..rows * columns).map(|i| code(i) & 15), 4);
                let signed = |i: usize| f32::from(((code(i) << 4) as i8) >> 4);
                let by_byte = WeightRows { columns, storage: WeightStorage::Int8(&bytes, scales) };
                let found = product(by_byte, &x, rows - 2);
                assert_close(&found, |r, c| f32::from(bytes[(r + 2) * columns + c]) * factor(r, c), &x);
                let codes = Int4Codes { bytes: &nibbles, is_signed: true, offsets: None };
                let matrix = WeightRows { columns, storage: WeightStorage::Int4(codes, scales) };
                let found = product(matrix, &x, rows - 2);
                assert_close(&found, |r, c| signed((r + 2) * columns + c) * factor(r, c), &x);
            }
        }
    }

    #[test]
    fn what_is_not_finite_shows() {
        for outlier in [1.0, 1e6] {
            let mut tables = [1.0; WIDE];
            tables[9] = outlier;
            let palettes = Palettes::new(&tables);
            let matrix = WeightRows { columns: 160, storage: WeightStorage::Lut4(&[0; 160], &palettes, 2) };
            for bad in [f32::NAN, f32::INFINITY] {
                let mut x = [0.5; 160];
                x[40] = bad;
                let (mut out, mut scratch) = ([0.0; 2], vec![0.0; scratch_len(x.len())]);
                gemv(&x, &[RowRange { matrix, first: 0, count: 2 }], &mut scratch, &mut out);
                assert!(out.iter().all(|sum| !sum.is_finite()));
            }
        }
    }

    #[test]
    fn what_is_no_whole_group_is_not_regular() {
        let values = TensorView::new(DType::F32, &[1], &[0; 4]).unwrap();
        let rows = |columns, block| WeightRows {
            columns,
            storage: WeightStorage::Int4(
                Int4Codes { bytes: &[], is_signed: true, offsets: None },
                Scales { rows: 1, block, values },
            ),
        };
        assert!(rows(160, 32).is_regular() && rows(128, 128).is_regular());
        assert!(!rows(144, 48).is_regular() && !rows(160, 16).is_regular() && !rows(0, 32).is_regular());
        assert!(!rows(96, 32).is_regular(), "fewer than four blocks");
        let bytes = |columns, block| WeightRows {
            columns,
            storage: WeightStorage::Int8(&[], Scales { rows: 1, block, values }),
        };
        assert!(bytes(96, 32).is_regular() && bytes(96, 96).is_regular() && bytes(128, 64).is_regular());
        assert!(!bytes(96, 64).is_regular() && !bytes(64, 16).is_regular() && !bytes(96, 0).is_regular());
    }
}
