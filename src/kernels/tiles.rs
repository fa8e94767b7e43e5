//! Products in register tiles: blocks that fit the caches are packed, multiplied, and finished while they are
//! at hand.
//!
//! The right operand is packed once for as many columns as memory allows, the left a block of rows at a time.
//! For each panel of columns, sums of all rows of the block are kept in the first-level cache until they are
//! complete, and then stored in the type of the output.

use std::cell::RefCell;
use std::ops::Range;

use super::gemm::Matrix;
use super::pack::{LeftBlock, STEPS, pack_columns, pack_rows};
use super::parallel;
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
/// Rows and columns are divided among threads in multiples of these, which every tile divides.
const ROW_UNIT: usize = 12;
const COLUMN_UNIT: usize = 2 * WIDE;

/// How a product is added to a sum.
pub(super) trait Mode: Copy + Send {
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
    /// Whether packing a row again costs much more than copying it.
    const IS_COSTLY: bool;

    /// The rows after the first `count`; there must be some.
    fn skip_rows(self, count: usize) -> Self;

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
    const IS_COSTLY: bool = false;

    fn skip_rows(self, count: usize) -> Self {
        Matrix::skip_rows(self, count)
    }

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
    /// The row that is the first here.
    pub(super) first: usize,
    /// Elements of a row.
    pub(super) columns: usize,
}

impl Left for Reader<'_> {
    const IS_COSTLY: bool = true;

    fn skip_rows(self, count: usize) -> Self {
        Reader { first: self.first + count, ..self }
    }

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
        (self.read)(self.first + rows.start..self.first + rows.end, values);
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

/// Computes a product in at most so many pieces, side by side.
pub(super) fn divide<L: Left, U: Load, O: Store, M: Mode>(product: Product<'_, L, U, O, M>, pieces: usize) {
    let Product { isa, mode, k, left, right, bias, out } = product;
    let by_columns = out.columns() >= out.rows() && !(L::IS_COSTLY && out.rows() >= 2 * ROW_UNIT);
    let middle = if by_columns {
        parallel::half(out.columns(), COLUMN_UNIT, pieces)
    } else {
        parallel::half(out.rows(), ROW_UNIT, pieces)
    };
    let Some(middle) = middle else {
        let product = Product { isa, mode, k, left, right, bias, out };
        return PACKED.with_borrow_mut(|packed| isa.run_tiled(Blocked { product, packed }));
    };
    let (first, second) = if by_columns {
        let (out, beside) = out.split_columns(middle);
        let next = right.skip_columns(middle);
        (
            Product { isa, mode, k, left, right, bias, out },
            Product { isa, mode, k, left, right: next, bias, out: beside },
        )
    } else {
        let (out, below) = out.split_rows(middle);
        let (next, rest) = (left.skip_rows(middle), bias.map(|bias| &bias[middle..]));
        (
            Product { isa, mode, k, left, right, bias, out },
            Product { isa, mode, k, left: next, right, bias: rest, out: below },
        )
    };
    parallel::join(|| divide(first, pieces / 2), || divide(second, pieces - pieces / 2));
}

thread_local! {
    static PACKED: RefCell<Packed> = RefCell::default();
}

/// Packed operands and sums; kept by each thread for its next product.
#[derive(Default)]
struct Packed {
    left: AlignedBuf,
    right: AlignedBuf,
    sums: AlignedBuf,
    read: AlignedBuf,
}

struct Blocked<'a, 'p, L, U, O, M> {
    product: Product<'a, L, U, O, M>,
    packed: &'p mut Packed,
}

impl<L: Left, U: Load, O: Store, M: Mode> TileOp for Blocked<'_, '_, L, U, O, M> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(self, s: S) {
        let Blocked { product: Product { mode, k, left, right, bias, mut out, .. }, packed } = self;
        let (m, n) = (out.rows(), out.columns());
        let most_rows = (LEFT_ELEMENTS / k.max(1)).clamp(ROWS, MOST_ROWS) / ROWS * ROWS;
        let most_columns = (RIGHT_ELEMENTS / k.max(1)).max(COLUMNS);
        let depth = k.next_multiple_of(STEPS);
        for columns in Blocks::new(n, most_columns, COLUMNS) {
            let right_panels: &mut [[f32; COLUMNS]] =
                room(&mut packed.right, columns.len().div_ceil(COLUMNS) * depth);
            pack_columns(s, right, columns.clone(), k, right_panels);
            for rows in Blocks::new(m, most_rows, ROWS) {
                let tiles = rows.len().div_ceil(ROWS);
                let left_panels: &mut [LeftBlock<ROWS>] = room(&mut packed.left, tiles * depth / STEPS);
                left.pack(s, rows.clone(), k, &mut packed.read, left_panels);
                let sums: &mut [[f32; COLUMNS]] = room(&mut packed.sums, tiles * ROWS);
                for (p, j) in columns.clone().step_by(COLUMNS).enumerate() {
                    let panel = &right_panels[p * depth..(p + 1) * depth];
                    sum_panel::<S, M, ROWS, VECTORS, COLUMNS>(s, mode, left_panels, panel, sums);
                    let width = COLUMNS.min(n - j);
                    for (i, sums) in rows.clone().zip(&*sums) {
                        finish(s, &sums[..width], bias.map(|bias| bias[i]), &mut out.row(i)[j..][..width]);
                    }
                }
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
