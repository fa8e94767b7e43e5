//! Products in register tiles: blocks that fit the caches are packed, multiplied, and finished while they are
//! at hand.
//!
//! The right operand is packed once for as many columns as memory allows, the left a block of rows at a time.
//! For each panel of columns, sums of all rows of the block are kept in the first-level cache until they are
//! complete, and then stored in the type of the output.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use super::gemm::Matrix;
use super::pack::{LeftBlock, STEPS, pack_columns, pack_rows};
use super::parallel::{self, Turns};
use super::simd::{Grid, Isa, LANES, Load, Simd, Store, TileOp, WIDE};
use crate::tensor::AlignedBuf;

/// Elements of a panel's part that stays in the first-level cache.
const PANEL_ELEMENTS: usize = 6144;
/// Elements of the left operand that are packed at a time, for the second-level cache.
const LEFT_ELEMENTS: usize = 1 << 17;
/// Rows of the left operand whose sums fit the first-level cache for one panel.
const MOST_ROWS: usize = 120;
/// Elements of the right operand that are packed at a time.
const RIGHT_ELEMENTS: usize = 1 << 20;
/// Columns are divided among threads in multiples of this, which every tile divides, if rows are too few: fewer than two
/// of these units for each.
const COLUMN_UNIT: usize = 2 * WIDE;
const ROW_UNIT: usize = 12;
/// Tiles below which a thread's turn is not worth packing them.
const LEAST_TILES: usize = 4;

/// How a product is added to a sum.
pub(super) trait Mode: Copy + Send + Sync {
    fn accumulate<S: Simd>(self, s: S, a: S::W, b: S::W, sum: S::W) -> S::W;
}

/// Rounded once, as f32.
#[derive(Clone, Copy)]
pub(super) struct Fused;

impl Mode for Fused {
    #[inline(always)]
    fn accumulate<S: Simd>(self, s: S, a: S::W, b: S::W, sum: S::W) -> S::W {
        s.mul_add_wide(a, b, sum)
    }
}

/// Product and sum rounded to fp16.
#[derive(Clone, Copy)]
pub(super) struct Rounded;

impl Mode for Rounded {
    #[inline(always)]
    fn accumulate<S: Simd>(self, s: S, a: S::W, b: S::W, sum: S::W) -> S::W {
        s.round_f16_wide(s.add_wide(sum, s.round_f16_wide(s.mul_wide(a, b))))
    }
}

/// A left operand, by rows.
pub(super) trait Left: Copy + Send + Sync {
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

impl<T: Load> Left for Matrix<'_, T> {
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

/// Rows that are produced when they are needed.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// Writes a range of rows.
    pub(super) read: &'a (dyn Fn(Range<usize>, &mut [f32]) + Sync),
    /// Elements of a row.
    pub(super) columns: usize,
}

impl Left for Reader<'_> {
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
pub(super) struct Product<'a, L, U, O, M> {
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
pub(super) fn divide<L: Left, U: Load, O: Store, M: Mode>(product: Product<'_, L, U, O, M>, threads: usize) {
    let (rows, columns) = (product.out.rows(), product.out.columns());
    let middle = match rows < 2 * threads * ROW_UNIT && columns > rows {
        true => parallel::half(columns, COLUMN_UNIT, threads),
        false => None,
    };
    let Some(middle) = middle else { return product.compute(threads) };
    let Product { isa, mode, k, left, right, bias, out } = product;
    let (out, beside) = out.split_columns(middle);
    let next = right.skip_columns(middle);
    parallel::join(
        || divide(Product { isa, mode, k, left, right, bias, out }, threads / 2),
        || divide(Product { isa, mode, k, left, right: next, bias, out: beside }, threads - threads / 2),
    );
}

thread_local! {
    /// The packed right operand; taken while it is used, so that a thread may begin another product meanwhile.
    static RIGHT: Cell<AlignedBuf> = Cell::default();
    static LOCAL: RefCell<Local> = RefCell::default();
}

/// What a thread needs for some rows; kept for its next product.
#[derive(Default)]
struct Local {
    left: AlignedBuf,
    sums: AlignedBuf,
    read: AlignedBuf,
}

/// Gives back what this thread keeps for its next product, unless that is little or in use.
pub(super) fn release() {
    let mut right = RIGHT.take();
    right.release();
    RIGHT.set(right);
    LOCAL.with(|local| {
        if let Ok(mut local) = local.try_borrow_mut() {
            let Local { left, sums, read } = &mut *local;
            [left, sums, read].into_iter().for_each(AlignedBuf::release);
        }
    });
}

impl<'a, L: Left, U: Load, O: Store, M: Mode> Product<'a, L, U, O, M> {
    /// The right operand is packed by all threads together, the left a block of rows at a time by whoever takes it.
    fn compute(self, threads: usize) {
        let Product { isa, mode, k, left, right, bias, out: mut rest } = self;
        let [tile_rows, tile_columns] = isa.tile();
        let panel = k.next_multiple_of(STEPS) * tile_columns;
        let most_rows = (LEFT_ELEMENTS / k.max(1)).clamp(tile_rows, MOST_ROWS) / tile_rows;
        let most_columns = (RIGHT_ELEMENTS / k.max(1)).max(tile_columns);
        let turns = Turns { threads, least: LEAST_TILES };
        let mut memory = RIGHT.take();
        for columns in Blocks::new(rest.columns(), most_columns, tile_columns) {
            let (out, beside) = rest.split_columns(columns.len());
            rest = beside;
            let right = right.skip_columns(columns.start);
            let panels: &mut [f32] = room(&mut memory, columns.len().div_ceil(tile_columns) * panel);
            parallel::parts(panels, panel, threads, &|start, panels| {
                let first = start / panel * tile_columns;
                isa.run_tiled(PackRight { right, columns: first..columns.len(), k, panels });
            });
            let panels = &*panels;
            let take = |(start, rest): &mut (usize, Option<Grid<'a, O>>)| {
                let grid = rest.take().filter(|grid| grid.rows() > 0)?;
                let tiles = turns.next(grid.rows().div_ceil(tile_rows)).min(most_rows);
                let count = (tiles * tile_rows).min(grid.rows());
                let (part, others) = grid.split_rows(count);
                let first = *start;
                (*start, *rest) = (first + part.rows(), Some(others));
                Some((first, part))
            };
            turns.take((0, Some(out)), take, |(first, out)| {
                LOCAL.with_borrow_mut(|local| {
                    isa.run_tiled(SomeRows { mode, k, left, first, panels, bias, out, local });
                });
            });
        }
        RIGHT.set(memory);
    }
}

/// Packs the first columns of a range as panels, as many as there is room for.
struct PackRight<'a, U> {
    right: Matrix<'a, U>,
    columns: Range<usize>,
    k: usize,
    panels: &'a mut [f32],
}

impl<U: Load> TileOp for PackRight<'_, U> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(self, s: S) {
        let PackRight { right, columns, k, panels } = self;
        pack_columns::<S, U, COLUMNS>(s, right, columns, k, panels.as_chunks_mut().0);
    }
}

/// The products of some rows, from `first` on, with all panels.
struct SomeRows<'a, 'g, L, O, M> {
    mode: M,
    k: usize,
    left: L,
    first: usize,
    panels: &'a [f32],
    bias: Option<&'a [f32]>,
    out: Grid<'g, O>,
    local: &'a mut Local,
}

impl<L: Left, O: Store, M: Mode> TileOp for SomeRows<'_, '_, L, O, M> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(self, s: S) {
        let SomeRows { mode, k, left, first, panels, bias, mut out, local } = self;
        let (depth, columns, tiles) = (k.next_multiple_of(STEPS), out.columns(), out.rows().div_ceil(ROWS));
        let left_panels: &mut [LeftBlock<ROWS>] = room(&mut local.left, tiles * depth / STEPS);
        left.pack(s, first..first + out.rows(), k, &mut local.read, left_panels);
        let sums: &mut [[f32; COLUMNS]] = room(&mut local.sums, tiles * ROWS);
        for (p, panel) in panels.as_chunks::<COLUMNS>().0.chunks_exact(depth).enumerate() {
            sum_panel::<S, M, ROWS, VECTORS, COLUMNS>(s, mode, left_panels, panel, sums);
            let j = p * COLUMNS;
            let width = COLUMNS.min(columns - j);
            for (i, sums) in (0..out.rows()).zip(&*sums) {
                let bias = bias.map(|bias| bias[first + i]);
                finish(s, &sums[..width], bias, &mut out.row(i)[j..][..width]);
            }
        }
    }
}

/// The sums of all rows of a block with the columns of one panel.
#[inline(always)]
fn sum_panel<S: Simd, M: Mode, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(
    s: S,
    mode: M,
    left: &[LeftBlock<ROWS>],
    right: &[[f32; COLUMNS]],
    sums: &mut [[f32; COLUMNS]],
) {
    let (right, _) = right.as_chunks::<STEPS>();
    for depth in Blocks::new(right.len(), PANEL_ELEMENTS / COLUMNS / STEPS, 1) {
        let part = &right[depth.clone()];
        for (left, sums) in left.chunks_exact(right.len()).zip(sums.as_chunks_mut::<ROWS>().0) {
            tile::<S, M, ROWS, VECTORS, COLUMNS>(s, mode, &left[depth.clone()], part, sums, depth.start > 0);
        }
    }
}

#[inline(always)]
fn tile<S: Simd, M: Mode, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(
    s: S,
    mode: M,
    left: &[LeftBlock<ROWS>],
    right: &[[[f32; COLUMNS]; STEPS]],
    out: &mut [[f32; COLUMNS]; ROWS],
    continues: bool,
) {
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
fn finish<S: Simd, O: Store>(s: S, sums: &[f32], bias: Option<f32>, out: &mut [O]) {
    for (sums, out) in sums.chunks(LANES).zip(out.chunks_mut(LANES)) {
        let mut v = f32::load_some(s, sums);
        if let Some(bias) = bias {
            v = s.add(v, s.splat(bias));
        }
        O::store_some(s, v, out);
    }
}

/// Room for so many elements.
fn room<T: bytemuck::Pod>(buffer: &mut AlignedBuf, count: usize) -> &mut [T] {
    let bytes = count * size_of::<T>();
    if buffer.len() < bytes {
        buffer.resize(bytes);
    }
    bytemuck::cast_slice_mut(&mut buffer[..bytes])
}

/// Ranges of about equal length, at most `most`, that cover `0..len`; all but the last are multiples of `unit`.
struct Blocks {
    next: usize,
    len: usize,
    step: usize,
}

impl Blocks {
    fn new(len: usize, most: usize, unit: usize) -> Blocks {
        let count = len.div_ceil(most).max(1);
        Blocks { next: 0, len, step: len.div_ceil(count).next_multiple_of(unit) }
    }
}

impl Iterator for Blocks {
    type Item = Range<usize>;

    #[inline(always)]
    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.next;
        self.next = self.len.min(start + self.step);
        (start < self.next).then_some(start..self.next)
    }
}
