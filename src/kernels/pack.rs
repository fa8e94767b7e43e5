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
            pack_along(s, source, first..last, depth.clone(), panel);
        } else if source.row_stride == 1 {
            pack_across(s, source, first..last, depth.clone(), panel);
        } else {
            pack_any(source, first..last, depth.clone(), panel);
        }
        first = last;
    }
}

/// Rows whose elements follow each other in memory.
#[inline(always)]
fn pack_along<S: Simd, T: Load, const WIDTH: usize>(
    s: S,
    source: Matrix<'_, T>,
    rows: Range<usize>,
    depth: Range<usize>,
    panel: &mut [[f32; WIDTH]],
) {
    let source = Matrix { data: &source.data[depth.start..], ..source };
    let mut lane = 0;
    while lane < WIDTH {
        let row = rows.start + lane;
        match rows.end.saturating_sub(row) {
            LANES.. => {
                pack_lanes::<S, T, WIDTH, LANES>(s, source.skip_rows(row), panel, lane);
                lane += LANES;
            }
            6..LANES => {
                pack_lanes::<S, T, WIDTH, 6>(s, source.skip_rows(row), panel, lane);
                lane += 6;
            }
            1..6 => {
                pack_lanes::<S, T, WIDTH, 1>(s, source.skip_rows(row), panel, lane);
                lane += 1;
            }
            0 => {
                for step in &mut *panel {
                    step[lane..].fill(0.0);
                }
                return;
            }
        }
    }
}

/// The first `COUNT` rows of `source`, from the given lane of the panel on.
#[inline(always)]
fn pack_lanes<S: Simd, T: Load, const WIDTH: usize, const COUNT: usize>(
    s: S,
    source: Matrix<'_, T>,
    panel: &mut [[f32; WIDTH]],
    lane: usize,
) {
    let (blocks, rest) = panel.as_chunks_mut::<LANES>();
    let whole = blocks.len();
    let mut lines: [&[T]; COUNT] = [&[]; COUNT];
    let mut lanes: [&[[T; LANES]]; COUNT] = [&[]; COUNT];
    for (row, (line, lanes)) in lines.iter_mut().zip(&mut lanes).enumerate() {
        *line = &source.data[row * source.row_stride..][..whole * LANES + rest.len()];
        *lanes = &line.as_chunks().0[..whole];
    }
    for (i, steps) in blocks.iter_mut().enumerate() {
        let mut block = [s.splat(0.0); LANES];
        for (v, lanes) in block.iter_mut().zip(lanes) {
            *v = T::load(s, &lanes[i]);
        }
        store_transposed::<S, WIDTH, COUNT>(s, block, steps, lane);
    }
    if !rest.is_empty() {
        let mut block = [s.splat(0.0); LANES];
        for (v, line) in block.iter_mut().zip(lines) {
            *v = T::load_some(s, &line[whole * LANES..]);
        }
        store_transposed::<S, WIDTH, COUNT>(s, block, rest, lane);
    }
}

/// Lane `i` of the first `COUNT` vectors becomes step `i`, from the given lane on.
#[inline(always)]
fn store_transposed<S: Simd, const WIDTH: usize, const COUNT: usize>(
    s: S,
    block: [S::V; LANES],
    steps: &mut [[f32; WIDTH]],
    lane: usize,
) {
    if COUNT == 1 {
        let mut row = [0.0; LANES];
        s.store(block[0], &mut row);
        for (step, x) in steps.iter_mut().zip(row) {
            step[lane] = x;
        }
        return;
    }
    for (step, v) in steps.iter_mut().zip(s.transpose(block)) {
        f32::store_some(s, v, &mut step[lane..][..COUNT]);
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
