//! GEMM with a right operand that is used as it lies in memory or decoded a block of columns at a time, so that a compressed or
//! fp16 weight is never held in f32 as a whole.
//!
//! Blocks are computed in waves: several at once, each in memory of its own, then given to the caller in order.

use std::ops::Range;

use half::f16;

use super::convert::round_f16;
use super::gemm::{Extents, Matrix, gemm, multiply, multiply_rounded};
use super::parallel::for_each_chunk;
use crate::tensor::{DType, TensorView};

/// The right operand of a product: `n` columns of length `k`.
#[derive(Clone, Copy)]
pub struct RightOperand<'a> {
    /// How its elements lie.
    pub layout: Layout,
    /// Where they come from.
    pub source: OperandSource<'a>,
}

/// How the elements of a right operand lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `[n, k]`: each column of the operand is contiguous, as in the weight of a linear layer.
    ColumnMajor,
    /// `[k, n]`: each row of the operand is contiguous.
    RowMajor,
}

/// Where the elements of a right operand come from.
#[derive(Clone, Copy)]
pub enum OperandSource<'a> {
    /// All of them are in memory.
    F32(&'a [f32]),
    /// All of them are in memory as fp16.
    F16(&'a [f16]),
    /// Writes a range of columns, laid out as the whole operand is.
    Decode(&'a (dyn Fn(Range<usize>, &mut [f32]) + Sync)),
}

impl<'a> OperandSource<'a> {
    /// A range of a tensor, if it can be used as it lies in memory.
    pub fn in_memory(view: &TensorView<'a>, range: Range<usize>) -> Option<OperandSource<'a>> {
        match view.dtype() {
            DType::F32 => view.slice().ok().map(|floats| OperandSource::F32(&floats[range])),
            _ => view.slice().ok().map(|halves| OperandSource::F16(&halves[range])),
        }
    }
}

/// A block of a product: which rows and columns, and its row-major elements.
pub struct OutputBlock<'a> {
    /// Rows of the product.
    pub rows: Range<usize>,
    /// Columns of the product.
    pub columns: Range<usize>,
    /// `rows x columns` elements.
    pub values: &'a mut [f32],
}

impl OutputBlock<'_> {
    /// Adds `bias`, which has one element per column of the whole product, rounding to fp16 if asked to.
    pub fn add_bias(&mut self, bias: &[f32], round_steps: bool) {
        let bias = &bias[self.columns.clone()];
        for row in self.values.chunks_exact_mut(bias.len().max(1)) {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value = if round_steps { round_f16(*value + bias) } else { *value + bias };
            }
        }
    }
}

/// Rows of the left operand that are worked on at a time.
const ROWS: usize = 1024;
/// Elements of the right operand per block when there are few rows: 128 KiB, which stay in a core's own cache.
const FEW_ROWS_BLOCK: usize = 1 << 15;
/// Elements of the right operand per block when there are many rows: 1 MiB, to repay packing.
const MANY_ROWS_BLOCK: usize = 1 << 18;
/// Blocks of a wave at most, and the elements they may take together: 16 MiB.
const WAVE_BLOCKS: usize = 32;
const WAVE_ELEMENTS: usize = 1 << 22;
/// Columns that are worth a call when each is scattered over memory.
const SCATTERED_COLUMNS: usize = 64;

/// A product `left x right`.
#[derive(Clone, Copy)]
pub struct StreamedGemm<'a> {
    /// Its extents.
    pub extents: Extents,
    /// The left operand, in memory.
    pub left: Matrix<'a>,
    /// The right operand.
    pub right: RightOperand<'a>,
    /// Whether every product and sum is rounded to fp16.
    pub round_steps: bool,
}

/// How a product is cut into blocks. It depends on the extents only, never on the machine.
struct Tiling {
    rows: usize,
    columns: usize,
    operand: usize,
    blocks: usize,
}

impl Tiling {
    fn new(extents: Extents, layout: Layout, dense: bool) -> Tiling {
        let Extents { m, k, n } = extents;
        // Nothing is decoded: a block is as wide as its results allow.
        if dense {
            let rows = m.clamp(1, ROWS);
            return Tiling {
                rows,
                columns: (WAVE_ELEMENTS / rows).clamp(1, n.max(1)),
                operand: 0,
                blocks: 1,
            };
        }
        let (rows, k) = (m.clamp(1, ROWS), k.max(1));
        // So few rows take a GEMV form, which packs nothing.
        let elements = if rows <= 8 { FEW_ROWS_BLOCK } else { MANY_ROWS_BLOCK };
        let least = if layout == Layout::RowMajor { SCATTERED_COLUMNS.min(WAVE_ELEMENTS / k) } else { 1 };
        let columns = (elements / k).min(MANY_ROWS_BLOCK * 4 / rows).max(least).clamp(1, n.max(1));
        let operand = columns * k;
        let blocks = (WAVE_ELEMENTS / (operand + rows * columns)).clamp(1, WAVE_BLOCKS);
        Tiling { rows, columns, operand, blocks: blocks.min(n.div_ceil(columns).max(1)) }
    }

    fn block_len(&self) -> usize {
        self.operand + self.rows * self.columns
    }

    fn scratch_len(&self) -> usize {
        self.blocks * self.block_len()
    }
}

/// Elements of scratch memory that a product needs; `dense` if its right operand is in memory.
pub fn scratch_len(extents: Extents, layout: Layout, dense: bool) -> usize {
    Tiling::new(extents, layout, dense).scratch_len()
}

impl StreamedGemm<'_> {
    /// Computes block by block; `finish` is given each block once, in a fixed order.
    pub fn compute(&self, scratch: &mut [f32], mut finish: impl FnMut(OutputBlock<'_>)) {
        let Extents { m, k, n } = self.extents;
        let dense = !matches!(self.right.source, OperandSource::Decode(_));
        let tiling = Tiling::new(self.extents, self.right.layout, dense);
        let wave = tiling.columns * tiling.blocks;
        let memory = &mut scratch[..tiling.scratch_len()];
        for first_row in (0..m).step_by(tiling.rows) {
            let rows = first_row..m.min(first_row + tiling.rows);
            for first in (0..n).step_by(wave) {
                let columns = |slot: usize| {
                    let start = n.min(first + slot * tiling.columns);
                    start..n.min(start + tiling.columns)
                };
                let work = rows.len().saturating_mul(k).saturating_mul(n.min(first + wave) - first);
                for_each_chunk(memory, tiling.block_len(), work, |slot, memory| {
                    let (operand, out) = memory.split_at_mut(tiling.operand);
                    self.block(rows.clone(), columns(slot), operand, out);
                });
                for (slot, memory) in memory.chunks_exact_mut(tiling.block_len()).enumerate() {
                    let columns = columns(slot);
                    let values = &mut memory[tiling.operand..][..rows.len() * columns.len()];
                    if !values.is_empty() {
                        finish(OutputBlock { rows: rows.clone(), columns, values });
                    }
                }
            }
        }
    }

    fn block(&self, rows: Range<usize>, columns: Range<usize>, operand: &mut [f32], out: &mut [f32]) {
        let Extents { k, n, .. } = self.extents;
        let block = Extents { m: rows.len(), k, n: columns.len() };
        let out = &mut out[..block.m * block.n];
        if k == 0 || out.is_empty() {
            out.fill(0.0);
            return;
        }
        let column_major = self.right.layout == Layout::ColumnMajor;
        let (stride, start) = if column_major { (k, columns.start * k) } else { (n, columns.start) };
        let left = Matrix { data: &self.left.data[rows.start * self.left.row_stride..], ..self.left };
        match self.right.source {
            OperandSource::Decode(read) => {
                let operand = &mut operand[..k * block.n];
                read(columns, operand);
                let right = oriented(operand, if column_major { k } else { block.n }, column_major);
                gemm(block, left, right, out, self.round_steps);
            }
            OperandSource::F32(data) => {
                gemm(block, left, oriented(&data[start..], stride, column_major), out, self.round_steps);
            }
            OperandSource::F16(data) => {
                let right = oriented(&data[start..], stride, column_major);
                let multiply = if self.round_steps { multiply_rounded } else { multiply };
                multiply(block, left, right, out);
            }
        }
    }
}

/// Rows of memory as rows or as columns of a matrix.
fn oriented<T>(data: &[T], stride: usize, column_major: bool) -> Matrix<'_, T> {
    let rows = Matrix::row_major(data, stride);
    if column_major { rows.transposed() } else { rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(product: StreamedGemm<'_>, dense: bool) -> Vec<f32> {
        let Extents { m, n, .. } = product.extents;
        let mut scratch = vec![f32::NAN; scratch_len(product.extents, product.right.layout, dense)];
        let mut out = vec![f32::NAN; m * n];
        product.compute(&mut scratch, |block| {
            for (row, values) in block.rows.zip(block.values.chunks_exact(block.columns.len())) {
                out[row * n + block.columns.start..][..values.len()].copy_from_slice(values);
            }
        });
        out
    }

    #[test]
    fn every_source_gives_the_same_product() {
        let round_to = |steps: bool| move |x: f32| if steps { round_f16(x) } else { x };
        for (m, k, n) in [(1, 40, 33), (5, 7, 50), (1100, 3, 20), (40, 30, 9000)] {
            let extents = Extents { m, k, n };
            let left: Vec<f32> = (0..m * k).map(|i| (i % 13) as f32 - 6.0).collect();
            let right: Vec<f32> = (0..k * n).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
            let halves: Vec<f16> = right.iter().map(|&x| f16::from_f32(x)).collect();
            for layout in [Layout::ColumnMajor, Layout::RowMajor] {
                let at = |i: usize, j: usize| if layout == Layout::RowMajor { i * n + j } else { j * k + i };
                let read = |columns: Range<usize>, block: &mut [f32]| {
                    for (c, column) in columns.clone().enumerate() {
                        for i in 0..k {
                            let row_major = layout == Layout::RowMajor;
                            let to = if row_major { i * columns.len() + c } else { c * k + i };
                            block[to] = right[at(i, column)];
                        }
                    }
                };
                for round_steps in [false, true] {
                    let of = |source| {
                        let right = RightOperand { layout, source };
                        let left = Matrix::row_major(&left, k);
                        compute(
                            StreamedGemm { extents, left, right, round_steps },
                            !matches!(source, OperandSource::Decode(_)),
                        )
                    };
                    let dense = of(OperandSource::F32(&right));
                    let round = round_to(round_steps);
                    let last = (0..k)
                        .fold(0.0, |sum, i| round(sum + round(left[(m - 1) * k + i] * right[at(i, n - 1)])));
                    assert_eq!(dense[m * n - 1], last, "{extents:?} {layout:?}");
                    assert_eq!(of(OperandSource::F16(&halves)), dense, "{extents:?} {layout:?}");
                    assert_eq!(of(OperandSource::Decode(&read)), dense, "{extents:?} {layout:?}");
                }
            }
        }
    }
}
