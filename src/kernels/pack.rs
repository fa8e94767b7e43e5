//! Copies blocks of strided matrices into the order in which the product reads them.
//!
//! A panel holds `WIDTH` rows of a matrix side by side for each step along its columns. What a panel lacks at
//! the edge of the matrix is zero.

use std::ops::Range;

use super::gemm::Matrix;
use super::simd::{LANES, Load, Simd, Store};

/// Packs `rows` of `source`, of each the elements in `depth`, as panels one after the other.
#[inline(always)]
pub(super) fn pack<S: Simd, T: Load, const WIDTH: usize>(
    s: S,
    source: Matrix<'_, T>,
    rows: Range<usize>,
    depth: Range<usize>,
    out: &mut [[f32; WIDTH]],
) {
    let mut first = rows.start;
    for panel in out.chunks_exact_mut(depth.len()) {
        let last = rows.end.min(first + WIDTH);
        if source.column_stride == 1 {
            for lane in (0..WIDTH).step_by(LANES) {
                let start = last.min(first + lane);
                pack_along(s, source, start..last.min(start + LANES), depth.clone(), panel, lane);
            }
        } else if source.row_stride == 1 {
            pack_across(s, source, first..last, depth.clone(), panel);
        } else {
            pack_any(source, first..last, depth.clone(), panel);
        }
        first = last;
    }
}

/// Up to eight rows whose elements follow each other in memory, from the given lane of the panel on.
#[inline(always)]
fn pack_along<S: Simd, T: Load, const WIDTH: usize>(
    s: S,
    source: Matrix<'_, T>,
    rows: Range<usize>,
    depth: Range<usize>,
    panel: &mut [[f32; WIDTH]],
    lane: usize,
) {
    let mut lines: [&[T]; LANES] = [&[]; LANES];
    for (line, row) in lines.iter_mut().zip(rows.clone()) {
        *line = &source.data[row * source.row_stride..][depth.clone()];
    }
    let width = LANES.min(WIDTH - lane);
    for (i, steps) in panel.chunks_mut(LANES).enumerate() {
        let mut block = [s.splat(0.0); LANES];
        for (v, line) in block.iter_mut().zip(&lines[..rows.len()]) {
            *v = T::load_some(s, &line[i * LANES..]);
        }
        for (step, v) in steps.iter_mut().zip(s.transpose(block)) {
            f32::store_some(s, v, &mut step[lane..][..width]);
        }
    }
}

/// Rows of which the elements of one column follow each other in memory.
#[inline(always)]
fn pack_across<S: Simd, T: Load, const WIDTH: usize>(
    s: S,
    source: Matrix<'_, T>,
    rows: Range<usize>,
    depth: Range<usize>,
    panel: &mut [[f32; WIDTH]],
) {
    for (step, column) in panel.iter_mut().zip(depth) {
        let line = &source.data[column * source.column_stride..][rows.clone()];
        for (lane, out) in step.chunks_mut(LANES).enumerate() {
            let v = T::load_some(s, &line[line.len().min(lane * LANES)..]);
            f32::store_some(s, v, out);
        }
    }
}

#[inline(always)]
fn pack_any<T: Load, const WIDTH: usize>(
    source: Matrix<'_, T>,
    rows: Range<usize>,
    depth: Range<usize>,
    panel: &mut [[f32; WIDTH]],
) {
    for (step, column) in panel.iter_mut().zip(depth) {
        *step = [0.0; WIDTH];
        for (out, row) in step.iter_mut().zip(rows.clone()) {
            *out = source.data[row * source.row_stride + column * source.column_stride].widen();
        }
    }
}
