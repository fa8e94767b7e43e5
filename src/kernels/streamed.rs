//! Matrix products whose right operand is produced piecemeal, so that a compressed or fp16 weight is never
//! held in f32 as a whole.

use std::ops::Range;

use super::convert::round_f16;
use super::gemm::{Extents, Matrix, gemm};
use super::parallel::for_each_chunk;

/// The right operand of a product: `n` columns of length `k`.
#[derive(Clone, Copy)]
pub struct Streamed<'a> {
    /// How its elements lie.
    pub layout: Layout,
    /// Where they come from.
    pub source: Source<'a>,
}

/// How the elements of a right operand lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `[n, k]`: each column of the operand is contiguous, as in the weight of a linear layer.
    ColumnMajor,
    /// `[k, n]`.
    RowMajor,
}

/// Where the elements of a right operand come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// All of them are in memory.
    Dense(&'a [f32]),
    /// Writes a range of columns, laid out as the whole operand is.
    Read(&'a (dyn Fn(Range<usize>, &mut [f32]) + Sync)),
}

/// A block of a product: which rows and columns, and its row-major elements.
pub struct Block<'a> {
    /// Rows of the product.
    pub rows: Range<usize>,
    /// Columns of the product.
    pub columns: Range<usize>,
    /// `rows x columns` elements.
    pub values: &'a mut [f32],
}

impl Block<'_> {
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
/// Elements of the right operand per block when there are few rows: a block then stays in a core's own cache.
const FEW_ROWS_BLOCK: usize = 1 << 15;
/// Elements of the right operand per block when there are many rows.
const MANY_ROWS_BLOCK: usize = 1 << 18;
/// Blocks that are computed side by side, and the memory they may take together.
const LANES: usize = 32;
const LANES_ELEMENTS: usize = 1 << 22;
/// Columns that are worth a call when each is scattered over memory.
const SCATTERED_COLUMNS: usize = 64;

/// A product `left x right`.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// Its extents.
    pub extents: Extents,
    /// The left operand, in memory.
    pub left: Matrix<'a>,
    /// The right operand.
    pub right: Streamed<'a>,
    /// Whether every product and sum is rounded to fp16.
    pub round_steps: bool,
}

/// How a product is cut into blocks. It depends on the extents only, never on the machine.
struct Tiling {
    rows: usize,
    columns: usize,
    operand: usize,
    lanes: usize,
}

impl Tiling {
    fn new(extents: Extents, layout: Layout, dense: bool) -> Tiling {
        let Extents { m, k, n } = extents;
        let (rows, k) = (m.clamp(1, ROWS), k.max(1));
        let elements = if rows <= 8 { FEW_ROWS_BLOCK } else { MANY_ROWS_BLOCK };
        let least = if layout == Layout::RowMajor { SCATTERED_COLUMNS.min(LANES_ELEMENTS / k) } else { 1 };
        let columns = (elements / k).min(MANY_ROWS_BLOCK * 4 / rows).max(least).clamp(1, n.max(1));
        let operand = if dense { 0 } else { columns * k };
        let lanes = (LANES_ELEMENTS / (operand + rows * columns)).clamp(1, LANES);
        Tiling { rows, columns, operand, lanes: lanes.min(n.div_ceil(columns).max(1)) }
    }

    fn lane(&self) -> usize {
        self.operand + self.rows * self.columns
    }

    fn scratch_len(&self) -> usize {
        self.lanes * self.lane()
    }
}

/// Elements of scratch memory that a product needs; `dense` if its right operand is in memory.
pub fn scratch_len(extents: Extents, layout: Layout, dense: bool) -> usize {
    Tiling::new(extents, layout, dense).scratch_len()
}

impl Product<'_> {
    /// Computes block by block; `finish` is given each block once, in a fixed order.
    pub fn compute(&self, scratch: &mut [f32], mut finish: impl FnMut(Block<'_>)) {
        let Extents { m, k, n } = self.extents;
        let dense = matches!(self.right.source, Source::Dense(_));
        let tiling = Tiling::new(self.extents, self.right.layout, dense);
        let wave = tiling.columns * tiling.lanes;
        let memory = &mut scratch[..tiling.scratch_len()];
        for first_row in (0..m).step_by(tiling.rows) {
            let rows = first_row..m.min(first_row + tiling.rows);
            for first in (0..n).step_by(wave) {
                let columns = |lane: usize| {
                    let start = n.min(first + lane * tiling.columns);
                    start..n.min(start + tiling.columns)
                };
                let work = rows.len().saturating_mul(k).saturating_mul(n.min(first + wave) - first);
                for_each_chunk(memory, tiling.lane(), work, |lane, memory| {
                    let (operand, out) = memory.split_at_mut(tiling.operand);
                    self.block(rows.clone(), columns(lane), operand, out);
                });
                for (lane, memory) in memory.chunks_exact_mut(tiling.lane()).enumerate() {
                    let columns = columns(lane);
                    let values = &mut memory[tiling.operand..][..rows.len() * columns.len()];
                    if !values.is_empty() {
                        finish(Block { rows: rows.clone(), columns, values });
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
        let right = match self.right.source {
            Source::Read(read) => {
                let operand = &mut operand[..k * block.n];
                read(columns, operand);
                Matrix::row_major(operand, if column_major { k } else { block.n })
            }
            Source::Dense(data) if column_major => Matrix::row_major(&data[columns.start * k..], k),
            Source::Dense(data) => Matrix::row_major(&data[columns.start..], n),
        };
        let right = if column_major { right.transposed() } else { right };
        let left = Matrix { data: &self.left.data[rows.start * self.left.row_stride..], ..self.left };
        gemm(block, left, right, out, self.round_steps);
    }
}
