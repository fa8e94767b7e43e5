//! Packing: copies strided matrices into panels, in the order in which the micro-kernel reads them.
//!
//! ```text
//! left panel, MR rows                          right panel, NR columns
//! block 0           block 1                    step 0   b[0][0 .. NR]
//!   a[0][0..8]        a[0][8..16]              step 1   b[1][0 .. NR]
//!   a[1][0..8]        a[1][8..16]              step 2   b[2][0 .. NR]
//!   ..                ..                       ..
//! ```
//!
//! The micro-kernel broadcasts single elements of the left operand, so that eight steps of a row can lie side by side: a row-major
//! left operand is packed by vector copies without a transposition. Elements beyond the edge of a matrix are zero.

use std::ops::Range;

use super::gemm::Matrix;
use super::simd::{LANES, Load, Simd, Store};

/// Steps along the depth of a product that a row of a left operand holds side by side.
pub(super) const STEPS: usize = LANES;

/// Some steps of `ROWS` rows of a left operand.
pub(super) type LeftBlock<const ROWS: usize> = [[f32; STEPS]; ROWS];

/// Packs `rows` of a left operand, `ROWS` at a time, all blocks of the first before those of the next.
#[inline(always)]
pub(super) fn pack_rows<S: Simd, T: Load, const ROWS: usize>(
    s: S,
    source: Matrix<'_, T>,
    rows: Range<usize>,
    depth: usize,
    out: &mut [LeftBlock<ROWS>],
) {
    let mut first = rows.start;
    for panel in out.chunks_exact_mut(depth.div_ceil(STEPS)) {
        let last = rows.end.min(first + ROWS);
        if source.column_stride == 1 {
            rows_along(s, source, first..last, depth, panel);
        } else if source.row_stride == 1 && ROWS == last - first {
            rows_across(s, source, first, depth, panel);
        } else {
            rows_any(source, first..last, depth, panel);
        }
        first = last;
    }
}

/// Rows whose elements follow each other in memory.
#[inline(always)]
fn rows_along<S: Simd, T: Load, const ROWS: usize>(
    s: S,
    source: Matrix<'_, T>,
    rows: Range<usize>,
    depth: usize,
    panel: &mut [LeftBlock<ROWS>],
) {
    for (r, row) in (rows.start..rows.start + ROWS).enumerate() {
        if row >= rows.end {
            panel.iter_mut().for_each(|block| block[r].fill(0.0));
            continue;
        }
        let line = &source.data[row * source.row_stride..][..depth];
        let (whole, rest) = line.as_chunks::<STEPS>();
        for (block, steps) in panel.iter_mut().zip(whole) {
            s.store(T::load(s, steps), &mut block[r]);
        }
        if let Some(block) = panel.get_mut(whole.len()) {
            s.store(T::load_some(s, rest), &mut block[r]);
        }
    }
}

/// Whole panels of which the elements of one column follow each other in memory.
#[inline(always)]
fn rows_across<S: Simd, T: Load, const ROWS: usize>(
    s: S,
    source: Matrix<'_, T>,
    first: usize,
    depth: usize,
    panel: &mut [LeftBlock<ROWS>],
) {
    for (b, block) in panel.iter_mut().enumerate() {
        for (part, rows) in block.chunks_mut(LANES).enumerate() {
            // Loaded along memory and transposed in registers: eight strided loads per vector would be slower.
            let mut columns = [s.splat(0.0); STEPS];
            for (step, column) in columns.iter_mut().zip(b * STEPS..depth) {
                let at = column * source.column_stride + first + part * LANES;
                *step = T::load_some(s, &source.data[at..]);
            }
            for (row, steps) in rows.iter_mut().zip(s.transpose(columns)) {
                s.store(steps, row);
            }
        }
    }
}

#[inline(always)]
fn rows_any<T: Load, const ROWS: usize>(
    source: Matrix<'_, T>,
    rows: Range<usize>,
    depth: usize,
    panel: &mut [LeftBlock<ROWS>],
) {
    for (b, block) in panel.iter_mut().enumerate() {
        *block = [[0.0; STEPS]; ROWS];
        for (steps, row) in block.iter_mut().zip(rows.clone()) {
            for (out, column) in steps.iter_mut().zip(b * STEPS..depth) {
                *out = source.data[row * source.row_stride + column * source.column_stride].widen();
            }
        }
    }
}

/// Packs `columns` of a right operand, `WIDTH` side by side for each step, as panels one after the other, each of whole
/// blocks of steps.
#[inline(always)]
pub(super) fn pack_columns<S: Simd, T: Load, const WIDTH: usize>(
    s: S,
    source: Matrix<'_, T>,
    columns: Range<usize>,
    depth: usize,
    out: &mut [[f32; WIDTH]],
) {
    let mut first = columns.start;
    for panel in out.chunks_exact_mut(depth.next_multiple_of(STEPS)) {
        let last = columns.end.min(first + WIDTH);
        let (steps, none) = panel.split_at_mut(depth);
        none.fill([0.0; WIDTH]);
        if source.column_stride == 1 {
            columns_across(s, source, first..last, steps);
        } else if source.row_stride == 1 {
            columns_along(s, source, first..last, steps);
        } else {
            columns_any(source, first..last, steps);
        }
        first = last;
    }
}

/// Columns that lie side by side in memory.
#[inline(always)]
fn columns_across<S: Simd, T: Load, const WIDTH: usize>(
    s: S,
    source: Matrix<'_, T>,
    columns: Range<usize>,
    panel: &mut [[f32; WIDTH]],
) {
    for (row, step) in panel.iter_mut().enumerate() {
        let line = &source.data[row * source.row_stride..][columns.clone()];
        for (lane, out) in step.chunks_mut(LANES).enumerate() {
            let v = T::load_some(s, &line[line.len().min(lane * LANES)..]);
            f32::store_some(s, v, out);
        }
    }
}

/// Columns whose elements follow each other in memory.
#[inline(always)]
fn columns_along<S: Simd, T: Load, const WIDTH: usize>(
    s: S,
    source: Matrix<'_, T>,
    columns: Range<usize>,
    panel: &mut [[f32; WIDTH]],
) {
    let depth = panel.len();
    for lane in (0..WIDTH).step_by(LANES) {
        let mut lines: [&[T]; LANES] = [&[]; LANES];
        for (line, column) in lines.iter_mut().zip(columns.start + lane..columns.end) {
            *line = &source.data[column * source.column_stride..][..depth];
        }
        for (b, steps) in panel.chunks_mut(LANES).enumerate() {
            let mut block = [s.splat(0.0); LANES];
            for (v, line) in block.iter_mut().zip(lines) {
                *v = T::load_some(s, &line[line.len().min(b * LANES)..]);
            }
            for (step, v) in steps.iter_mut().zip(s.transpose(block)) {
                f32::store_some(s, v, &mut step[lane..][..LANES]);
            }
        }
    }
}

#[inline(always)]
fn columns_any<T: Load, const WIDTH: usize>(
    source: Matrix<'_, T>,
    columns: Range<usize>,
    panel: &mut [[f32; WIDTH]],
) {
    for (row, step) in panel.iter_mut().enumerate() {
        *step = [0.0; WIDTH];
        for (out, column) in step.iter_mut().zip(columns.clone()) {
            *out = source.data[row * source.row_stride + column * source.column_stride].widen();
        }
    }
}
