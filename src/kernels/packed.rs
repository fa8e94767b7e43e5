//! Products of one row with weights that are read as they are stored and never expanded.
//!
//! Compressed weights are integers, or integers named by codes, and so is the row they meet: its elements are fixed-point
//! numbers that share a scale in blocks. Products are summed exactly within a block, and the sums of blocks in f32. A row
//! with an element that is not finite gives NaN.

use half::f16;

use super::code_rows::{ByteSums, NamedSums, NibbleSums};
use super::fixed_point::{FixedQuads, FixedRow, row_len};
use super::gemm::Matrix;
use super::parallel;
use super::row_products::RowDots;
use super::simd::{BLOCK, Isa, QUAD, Quad, SplitQuad};
use crate::tensor::TensorView;

/// Rows below which work is not divided further.
const ROW_UNIT: usize = 8;

/// A matrix of weights, by rows.
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
    /// As fp16.
    Halves(&'a [f16]),
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
    /// Whether [`multiply`] can be used.
    pub fn is_regular(&self) -> bool {
        let typed = |factors: Factors<'_>| {
            factors.values.slice::<f16>().is_ok() || factors.values.slice::<f32>().is_ok()
        };
        let has_blocks = self.columns > 0 && self.columns.is_multiple_of(BLOCK);
        let has_quads = has_blocks && self.columns >= QUAD * BLOCK;
        match self.codes {
            Codes::Halves(_) => self.columns > 0,
            Codes::Bytes(_, factors) => has_blocks && factors.block == self.columns && typed(factors),
            Codes::Nibbles(_, factors) => {
                let whole = factors.block > 0 && self.columns.is_multiple_of(factors.block);
                has_quads && whole && factors.block.is_multiple_of(BLOCK) && typed(factors)
            }
            Codes::Palette(..) => has_quads,
        }
    }
}

/// Some consecutive rows of a matrix.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Part<'a> {
    pub matrix: PackedRows<'a>,
    pub first: usize,
    pub count: usize,
}

/// Elements of scratch memory that [`multiply`] needs for rows of so many elements.
pub fn scratch_len(columns: usize) -> usize {
    FORMS * row_len(columns)
}

/// The sums of products of `x` with every row of all parts, one part after the other.
///
/// # Panics
/// If matrices are not regular or not as wide as `x`, have fewer rows than is said, or scratch memory is too short.
pub fn multiply(x: &[f32], parts: &[Part<'_>], scratch: &mut [f32], out: &mut [f32]) {
    multiply_with(Isa::best(), x, parts, scratch, out);
}

fn multiply_with(isa: Isa, x: &[f32], parts: &[Part<'_>], scratch: &mut [f32], out: &mut [f32]) {
    let pieces = parallel::pieces(out.len().saturating_mul(x.len()));
    let row = Row::new(isa, x, parts, scratch);
    parallel::parts(out, ROW_UNIT, pieces, &|mut start, mut out| {
        for part in parts {
            if start < part.count {
                let (here, rest) = out.split_at_mut((part.count - start).min(out.len()));
                row.meet(isa, part.matrix.codes, part.first + start, here);
                out = rest;
            }
            start = start.saturating_sub(part.count);
        }
    });
}

/// How many forms a row can have besides its own.
const FORMS: usize = 3;

/// A row in every form that its weights ask for.
struct Row<'a> {
    x: &'a [f32],
    blocks: Option<FixedRow<'a>>,
    split: Option<FixedQuads<'a, SplitQuad>>,
    quads: Option<FixedQuads<'a, Quad>>,
}

impl<'a> Row<'a> {
    fn new(isa: Isa, x: &'a [f32], parts: &[Part<'_>], scratch: &'a mut [f32]) -> Row<'a> {
        let has = |is: fn(&Codes<'_>) -> bool| parts.iter().any(|part| is(&part.matrix.codes));
        let (blocks, rest) = scratch.split_at_mut(row_len(x.len()));
        let (split, quads) = rest.split_at_mut(row_len(x.len()));
        Row {
            x,
            blocks: has(|codes| matches!(codes, Codes::Bytes(..))).then(|| FixedRow::new(isa, x, blocks)),
            split: has(|codes| matches!(codes, Codes::Nibbles(..))).then(|| FixedQuads::new(isa, x, split)),
            quads: has(|codes| matches!(codes, Codes::Palette(..))).then(|| FixedQuads::new(isa, x, quads)),
        }
    }

    /// The sums of products with rows from `first` on.
    fn meet(&self, isa: Isa, codes: Codes<'_>, first: usize, out: &mut [f32]) {
        match (codes, self.blocks, self.split, self.quads) {
            (Codes::Halves(halves), ..) => {
                let w = Matrix::row_major(&halves[first * self.x.len()..], self.x.len());
                isa.run(RowDots { x: self.x, w, out });
            }
            (Codes::Bytes(codes, factors), Some(x), ..) => {
                isa.run(ByteSums { x, codes: codes.as_chunks().0, factors, first, out });
            }
            (Codes::Nibbles(codes, factors), _, Some(x), _) => {
                isa.run(NibbleSums { x, codes: codes.as_chunks().0, factors, first, out });
            }
            (Codes::Palette(codes, tables, rows), .., Some(x)) => {
                isa.run(NamedSums { x, codes: codes.as_chunks().0, tables, rows, first, out });
            }
            _ => unreachable!("every form that is asked for was made"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::simd::WIDE;
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
    fn product(matrix: PackedRows<'_>, x: &[f32], rows: usize) -> Vec<f32> {
        assert!(matrix.is_regular());
        let parts = [Part { matrix, first: 2, count: rows }];
        let mut out = vec![f32::NAN; rows];
        let mut scratch = vec![f32::NAN; scratch_len(x.len())];
        multiply(x, &parts, &mut scratch, &mut out);
        for isa in Isa::all() {
            let mut again = vec![f32::NAN; rows];
            multiply_with(isa, x, &parts, &mut scratch, &mut again);
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
        let tables: Vec<f32> = (0..WIDE).map(|i| i as f32 / 8.0 - 1.0).collect();
        let rows = Factors { rows: 1, block: columns, values: values(&per_row) };
        let blocks = Factors { rows: 1, block: BLOCK, values: values(&per_block) };
        let parts = [
            (Codes::Halves(&halves), 3, 650),
            (Codes::Bytes(&bytes, rows), 0, 300),
            (Codes::Nibbles(&codes, blocks), 5, 211),
            (Codes::Palette(&codes, &tables, 300), 1, 1),
            (Codes::Palette(&codes, &tables, 300), 8, 270),
        ];
        let parts =
            parts.map(|(codes, first, count)| Part { matrix: PackedRows { columns, codes }, first, count });
        let mut scratch = vec![f32::NAN; scratch_len(columns)];
        let mut alone = Vec::new();
        for part in &parts {
            let mut out = vec![f32::NAN; part.count];
            multiply(&x, std::slice::from_ref(part), &mut scratch, &mut out);
            alone.extend(out);
        }
        for threads in 1..=3 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut together = vec![f32::NAN; alone.len()];
            pool.install(|| multiply(&x, &parts, &mut scratch, &mut together));
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
                let factors = Factors { rows: shared, block, values };
                let bytes: Vec<i8> = (0..rows * columns).map(|i| code(i) as i8).collect();
                let nibbles = packed::pack((0..rows * columns).map(|i| code(i) & 15), 4);
                let signed = |i: usize| f32::from(((code(i) << 4) as i8) >> 4);
                let by_byte = PackedRows { columns, codes: Codes::Bytes(&bytes, factors) };
                assert_eq!(by_byte.is_regular(), block == columns);
                if block == columns {
                    let found = product(by_byte, &x, rows - 2);
                    assert_close(
                        &found,
                        |r, c| f32::from(bytes[(r + 2) * columns + c]) * factor(r, c),
                        &x,
                        0.0,
                    );
                }
                let found =
                    product(PackedRows { columns, codes: Codes::Nibbles(&nibbles, factors) }, &x, rows - 2);
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
        let found = product(PackedRows { columns, codes: Codes::Palette(&codes, &tables, 4) }, &x, rows - 2);
        let weight = |r: usize, c: usize| tables[(r + 2) / 4 * 16 + usize::from(code((r + 2) * columns + c))];
        assert_close(&found, weight, &x, 2.0 + 30.0 / 7.0);
    }

    #[test]
    fn what_is_not_finite_shows() {
        let tables = [1.0; WIDE];
        let matrix = PackedRows { columns: 160, codes: Codes::Palette(&[0; 160], &tables, 2) };
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [0.5; 160];
            x[40] = bad;
            let (mut out, mut scratch) = ([0.0; 2], vec![0.0; scratch_len(x.len())]);
            multiply(&x, &[Part { matrix, first: 0, count: 2 }], &mut scratch, &mut out);
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
