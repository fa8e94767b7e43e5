//! Blocked GEMM in the way of Goto & van de Geijn (2008) and BLIS: packed panels, a micro-kernel in registers.
//!
//! ```text
//! for columns of b, as many as 4 MiB hold            pack b into panels of NR columns    (all threads)   L3
//!   for rows of a, at most 120                       pack a into panels of MR rows       (each thread)   L2
//!     for each panel of b                            macro-kernel
//!       for 24 KiB of the panel                                                                          L1
//!         for each panel of a                        micro-kernel: MR x NR sums                          registers
//! ```
//!
//! The depth `k` is divided innermost, unlike BLIS: the sums of 120 rows with one panel stay in the first-level cache until they
//! are complete. So they are added in index order whatever the blocks, and rounded to the type of the output once.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use super::gemm::Matrix;
use super::packing::{LeftBlock, STEPS, pack_columns, pack_rows};
use super::parallel::{self, GuidedSchedule};
use super::simd::{Grid, Isa, LANES, Load, Simd, Store, TileOp, WIDE};
use crate::tensor::AlignedBuf;

/// f32 elements of a panel of b that stay in the first-level cache: 24 KiB, of 32 or 48.
const PANEL_BLOCK_ELEMENTS: usize = 6144;
/// Elements of the left operand that are packed at a time: 512 KiB, half of a usual second-level cache.
const LEFT_BLOCK_ELEMENTS: usize = 1 << 17;
/// Rows whose sums with one panel fit the first-level cache beside it: 15 KiB with panels of 32 columns, 7.5 with 16. A multiple
/// of the rows of every micro-kernel.
pub(super) const MOST_ROWS: usize = 120;
/// Elements of the right operand that are packed at a time: 4 MiB, a share of the third-level cache.
const RIGHT_BLOCK_ELEMENTS: usize = 1 << 20;
/// Columns are divided among threads in multiples of this, which the width of every panel divides, if rows are too few: fewer
/// than two of these units for each.
const COLUMN_UNIT: usize = 2 * WIDE;
const ROW_UNIT: usize = 12;
/// Panels of rows below which a thread's turn is not worth packing them.
pub(super) const LEAST_TILES: usize = 4;

/// How a product is added to a sum.
pub(super) trait Accumulation: Copy + Send + Sync {
    fn accumulate<S: Simd>(self, s: S, a: S::W, b: S::W, sum: S::W) -> S::W;
}

/// Rounded once, as f32.
#[derive(Clone, Copy)]
pub(super) struct FmaF32;

impl Accumulation for FmaF32 {
    #[inline(always)]
    fn accumulate<S: Simd>(self, s: S, a: S::W, b: S::W, sum: S::W) -> S::W {
        s.mul_add_wide(a, b, sum)
    }
}

/// Product and sum rounded to fp16.
#[derive(Clone, Copy)]
pub(super) struct RoundF16;

impl Accumulation for RoundF16 {
    #[inline(always)]
    fn accumulate<S: Simd>(self, s: S, a: S::W, b: S::W, sum: S::W) -> S::W {
        s.round_f16_wide(s.add_wide(sum, s.round_f16_wide(s.mul_wide(a, b))))
    }
}

/// A left operand, by rows.
pub(super) trait LeftOperand: Copy + Send + Sync {
    /// Packs whole rows. `memory` is working memory.
    fn pack<S: Simd, const ROWS: usize>(
        self,
        s: S,
        rows: Range<usize>,
        columns: usize,
        memory: &mut AlignedBuf,
        out: &mut [LeftBlock<ROWS>],
    );
}

impl<T: Load> LeftOperand for Matrix<'_, T> {
    #[inline(always)]
    fn pack<S: Simd, const ROWS: usize>(
        self,
        s: S,
        rows: Range<usize>,
        columns: usize,
        _: &mut AlignedBuf,
        out: &mut [LeftBlock<ROWS>],
    ) {
        pack_rows(s, self, rows, columns, out);
    }
}

/// Rows that are decoded when they are packed.
#[derive(Clone, Copy)]
pub(super) struct DecodedRows<'a> {
    /// Writes a range of rows.
    pub(super) read: &'a (dyn Fn(Range<usize>, &mut [f32]) + Sync),
    /// Elements of a row.
    pub(super) columns: usize,
}

impl LeftOperand for DecodedRows<'_> {
    #[inline(always)]
    fn pack<S: Simd, const ROWS: usize>(
        self,
        s: S,
        rows: Range<usize>,
        columns: usize,
        memory: &mut AlignedBuf,
        out: &mut [LeftBlock<ROWS>],
    ) {
        memory.resize(rows.len() * self.columns * size_of::<f32>());
        let values: &mut [f32] = bytemuck::cast_slice_mut(memory);
        (self.read)(rows.clone(), values);
        pack_rows(s, Matrix::row_major(values, self.columns), 0..rows.len(), columns, out);
    }
}

/// A product, or a rectangle of one.
pub(super) struct Gemm<'a, L, U, O, M> {
    pub(super) isa: Isa,
    pub(super) mode: M,
    pub(super) k: usize,
    pub(super) left: L,
    pub(super) right: Matrix<'a, U>,
    /// Added to the finished sums, one per row.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) out: Grid<'a, O>,
}

/// Computes a product on at most so many threads.
pub(super) fn blocked_gemm<L: LeftOperand, U: Load, O: Store, M: Accumulation>(
    product: Gemm<'_, L, U, O, M>,
    threads: usize,
) {
    let (rows, columns) = (product.out.rows(), product.out.columns());
    // Columns are divided only where rows are too few, because either half packs all rows again.
    let middle = match rows < 2 * threads * ROW_UNIT && columns > rows {
        true => parallel::half(columns, COLUMN_UNIT, threads),
        false => None,
    };
    let Some(middle) = middle else { return product.compute(threads) };
    let Gemm { isa, mode, k, left, right, bias, out } = product;
    let (out, beside) = out.split_columns(middle);
    let next = right.skip_columns(middle);
    parallel::join(
        || blocked_gemm(Gemm { isa, mode, k, left, right, bias, out }, threads / 2),
        || blocked_gemm(Gemm { isa, mode, k, left, right: next, bias, out: beside }, threads - threads / 2),
    );
}

thread_local! {
    /// The packed right operand; taken while it is used, so that a thread may begin another product meanwhile.
    pub(super) static RIGHT_PANELS: Cell<AlignedBuf> = Cell::default();
    static BUFFERS: RefCell<ThreadBuffers> = RefCell::default();
}

/// What a thread needs for some rows; kept for its next product.
#[derive(Default)]
pub(super) struct ThreadBuffers {
    /// Packed rows of the left operand.
    pub(super) left: AlignedBuf,
    /// Their sums with a panel of the right operand.
    pub(super) sums: AlignedBuf,
    /// Rows before they are packed, or what belongs to packed rows.
    pub(super) read: AlignedBuf,
}

/// Gives back what this thread keeps for its next product, unless that is little or in use.
pub(super) fn release() {
    let mut right = RIGHT_PANELS.take();
    right.release();
    RIGHT_PANELS.set(right);
    BUFFERS.with(|buffers| {
        if let Ok(mut buffers) = buffers.try_borrow_mut() {
            let ThreadBuffers { left, sums, read } = &mut *buffers;
            [left, sums, read].into_iter().for_each(AlignedBuf::release);
        }
    });
}

impl<'a, L: LeftOperand, U: Load, O: Store, M: Accumulation> Gemm<'a, L, U, O, M> {
    /// The right operand is packed by all threads together, the left a block of rows at a time by whoever takes it.
    fn compute(self, threads: usize) {
        let Gemm { isa, mode, k, left, right, bias, out: mut rest } = self;
        let [tile_rows, tile_columns] = isa.tile();
        let panel = k.next_multiple_of(STEPS) * tile_columns;
        let most_tiles = (LEFT_BLOCK_ELEMENTS / k.max(1)).clamp(tile_rows, MOST_ROWS) / tile_rows;
        let most_columns = (RIGHT_BLOCK_ELEMENTS / k.max(1)).max(tile_columns);
        let schedule = GuidedSchedule { threads, least: LEAST_TILES };
        let mut memory = RIGHT_PANELS.take();
        for columns in BlockRanges::new(rest.columns(), most_columns, tile_columns) {
            let (out, beside) = rest.split_columns(columns.len());
            rest = beside;
            let right = right.skip_columns(columns.start);
            let panels: &mut [f32] = reserve(&mut memory, columns.len().div_ceil(tile_columns) * panel);
            parallel::parts(panels, panel, threads, &|start, panels| {
                let first = start / panel * tile_columns;
                isa.run_tiled(PackRightPanels { right, columns: first..columns.len(), k, panels });
            });
            let panels = &*panels;
            for_each_row_block(schedule, out, (tile_rows, most_tiles), |first, out, buffers| {
                isa.run_tiled(RowBlock { mode, k, left, first, panels, bias, out, buffers });
            });
        }
        RIGHT_PANELS.set(memory);
    }
}

/// Has threads take the rows of a matrix, at most so many tiles of rows at a time, and calls `body` with the index of the first row
/// of each block.
pub(super) fn for_each_row_block<'a, O: Send>(
    schedule: GuidedSchedule,
    out: Grid<'a, O>,
    (tile_rows, most_tiles): (usize, usize),
    body: impl Fn(usize, Grid<'a, O>, &mut ThreadBuffers) + Sync,
) {
    let take = |(start, rest): &mut (usize, Option<Grid<'a, O>>)| {
        let grid = rest.take().filter(|grid| grid.rows() > 0)?;
        let tiles = schedule.next(grid.rows().div_ceil(tile_rows)).min(most_tiles);
        let count = (tiles * tile_rows).min(grid.rows());
        let (part, others) = grid.split_rows(count);
        let first = *start;
        (*start, *rest) = (first + part.rows(), Some(others));
        Some((first, part))
    };
    schedule.run((0, Some(out)), take, |(first, part)| {
        BUFFERS.with_borrow_mut(|buffers| body(first, part, buffers));
    });
}

/// Packs the first columns of a range as panels, as many as there is room for.
struct PackRightPanels<'a, U> {
    right: Matrix<'a, U>,
    columns: Range<usize>,
    k: usize,
    panels: &'a mut [f32],
}

impl<U: Load> TileOp for PackRightPanels<'_, U> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(self, s: S) {
        let PackRightPanels { right, columns, k, panels } = self;
        pack_columns::<S, U, COLUMNS>(s, right, columns, k, panels.as_chunks_mut().0);
    }
}

/// The products of some rows, from `first` on, with all panels.
struct RowBlock<'a, 'g, L, O, M> {
    mode: M,
    k: usize,
    left: L,
    first: usize,
    panels: &'a [f32],
    bias: Option<&'a [f32]>,
    out: Grid<'g, O>,
    buffers: &'a mut ThreadBuffers,
}

impl<L: LeftOperand, O: Store, M: Accumulation> TileOp for RowBlock<'_, '_, L, O, M> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(self, s: S) {
        let RowBlock { mode, k, left, first, panels, bias, mut out, buffers } = self;
        let (depth, columns, tiles) = (k.next_multiple_of(STEPS), out.columns(), out.rows().div_ceil(ROWS));
        let left_panels: &mut [LeftBlock<ROWS>] = reserve(&mut buffers.left, tiles * depth / STEPS);
        left.pack(s, first..first + out.rows(), k, &mut buffers.read, left_panels);
        let sums: &mut [[f32; COLUMNS]] = reserve(&mut buffers.sums, tiles * ROWS);
        for (p, panel) in panels.as_chunks::<COLUMNS>().0.chunks_exact(depth).enumerate() {
            macro_kernel::<S, M, ROWS, VECTORS, COLUMNS>(s, mode, left_panels, panel, sums);
            let j = p * COLUMNS;
            let width = COLUMNS.min(columns - j);
            for (i, sums) in (0..out.rows()).zip(&*sums) {
                let bias = bias.map(|bias| bias[first + i]);
                finish(s, &sums[..width], bias, &mut out.row(i)[j..][..width]);
            }
        }
    }
}

/// The sums of all panels of rows with one panel of columns.
#[inline(always)]
fn macro_kernel<S: Simd, M: Accumulation, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(
    s: S,
    mode: M,
    left: &[LeftBlock<ROWS>],
    right: &[[f32; COLUMNS]],
    sums: &mut [[f32; COLUMNS]],
) {
    let (right, _) = right.as_chunks::<STEPS>();
    for depth in BlockRanges::new(right.len(), PANEL_BLOCK_ELEMENTS / COLUMNS / STEPS, 1) {
        let part = &right[depth.clone()];
        for (left, sums) in left.chunks_exact(right.len()).zip(sums.as_chunks_mut::<ROWS>().0) {
            micro_kernel::<S, M, ROWS, VECTORS, COLUMNS>(
                s,
                mode,
                &left[depth.clone()],
                part,
                sums,
                depth.start > 0,
            );
        }
    }
}

/// Outer products of a panel of rows and one of columns, added up in registers; `continues` what `out` has.
#[inline(always)]
fn micro_kernel<S: Simd, M: Accumulation, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(
    s: S,
    mode: M,
    left: &[LeftBlock<ROWS>],
    right: &[[[f32; COLUMNS]; STEPS]],
    out: &mut [[f32; COLUMNS]; ROWS],
    continues: bool,
) {
    // The register tile. The compiler keeps it in registers because all its bounds are constants.
    let mut sums = [[s.splat_wide(0.0); VECTORS]; ROWS];
    if continues {
        for (sums, out) in sums.iter_mut().zip(&*out) {
            for (sum, out) in sums.iter_mut().zip(out.as_chunks::<WIDE>().0) {
                *sum = s.load_wide(out);
            }
        }
    }
    for (left, right) in left.iter().zip(right) {
        for (step, right) in right.iter().enumerate() {
            let mut lanes = [s.splat_wide(0.0); VECTORS];
            for (lanes, right) in lanes.iter_mut().zip(right.as_chunks::<WIDE>().0) {
                *lanes = s.load_wide(right);
            }
            for (sums, left) in sums.iter_mut().zip(left) {
                let a = s.splat_wide(left[step]);
                for (sum, &b) in sums.iter_mut().zip(&lanes) {
                    *sum = mode.accumulate(s, a, b, *sum);
                }
            }
        }
    }
    for (sums, out) in sums.into_iter().zip(out) {
        for (sum, out) in sums.into_iter().zip(out.as_chunks_mut::<WIDE>().0) {
            s.store_wide(sum, out);
        }
    }
}

#[inline(always)]
pub(super) fn finish<S: Simd, O: Store>(s: S, sums: &[f32], bias: Option<f32>, out: &mut [O]) {
    for (sums, out) in sums.chunks(LANES).zip(out.chunks_mut(LANES)) {
        let mut v = f32::load_some(s, sums);
        if let Some(bias) = bias {
            // In f32, before the only rounding.
            v = s.add(v, s.splat(bias));
        }
        O::store_some(s, v, out);
    }
}

/// Room for so many elements.
pub(super) fn reserve<T: bytemuck::Pod>(buffer: &mut AlignedBuf, count: usize) -> &mut [T] {
    let bytes = count * size_of::<T>();
    if buffer.len() < bytes {
        buffer.resize(bytes);
    }
    bytemuck::cast_slice_mut(&mut buffer[..bytes])
}

/// Ranges of about equal length, at most `most`, that cover `0..len`; all but the last are multiples of `unit`.
pub(super) struct BlockRanges {
    next: usize,
    len: usize,
    step: usize,
}

impl BlockRanges {
    pub(super) fn new(len: usize, most: usize, unit: usize) -> BlockRanges {
        let count = len.div_ceil(most).max(1);
        BlockRanges { next: 0, len, step: len.div_ceil(count).next_multiple_of(unit) }
    }
}

impl Iterator for BlockRanges {
    type Item = Range<usize>;

    #[inline(always)]
    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.next;
        self.next = self.len.min(start + self.step);
        (start < self.next).then_some(start..self.next)
    }
}
