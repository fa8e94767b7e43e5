//! Softmax in place over `[outer, length, inner]` data: the maximum is subtracted first, in a pass of its own, so that no
//! exponential overflows.

use std::cell::RefCell;

use super::simd::{Isa, LANES, Load, Op, Simd, Store};
use super::{math, parallel, rows};
use crate::tensor::AlignedBuf;

/// What an element costs, in multiply-adds.
const COST: usize = 16;

/// Softmax along the middle axis. A row whose largest element is infinite, or that holds a NaN, becomes NaN.
pub fn softmax_f32(data: &mut [f32], length: usize, inner: usize) {
    softmax(Isa::best(), Plain, data, length, inner);
}

/// Softmax of rows of `length` elements, each computed in f32 and rounded once.
///
/// # Panics
/// If `out` is not as long as `x`.
pub fn softmax_rows<T: Store>(x: &[T], out: &mut [T], length: usize) {
    softmax_masked(x, &[], out, length);
}

/// [`softmax_rows`] of elements to which those of `mask` are added, over and over; none if it is empty.
///
/// # Panics
/// If `out` is not as long as `x`, or `mask` is no whole number of rows.
pub fn softmax_masked<T: Store>(x: &[T], mask: &[T], out: &mut [T], length: usize) {
    assert_eq!(x.len(), out.len(), "as many results as elements");
    if length == 0 {
        return;
    }
    assert!(mask.len().is_multiple_of(length), "a mask is whole rows");
    let pieces = parallel::pieces(x.len().saturating_mul(COST));
    parallel::parts(out, length, pieces, &|start, out| {
        let x = &x[start..][..out.len()];
        let first = start / length;
        COLUMN.with_borrow_mut(|row| Isa::best().run(Rows { x, mask, first, out, length, row }));
    });
}

struct Rows<'a, T> {
    x: &'a [T],
    mask: &'a [T],
    /// Place of the first row among all.
    first: usize,
    out: &'a mut [T],
    length: usize,
    row: &'a mut AlignedBuf,
}

impl<T: Store> Op for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { x, mask, first, out, length, row } = self;
        row.resize(length * size_of::<f32>());
        let row: &mut [f32] = bytemuck::cast_slice_mut(row);
        let masks = mask.len() / length;
        for (i, (x, out)) in x.chunks_exact(length).zip(out.chunks_exact_mut(length)).enumerate() {
            for (x, to) in x.chunks(LANES).zip(row.chunks_mut(LANES)) {
                f32::store_some(s, T::load_some(s, x), to);
            }
            if masks > 0 {
                let mask = &mask[(first + i) % masks * length..][..length];
                for (mask, to) in mask.chunks(LANES).zip(row.chunks_mut(LANES)) {
                    f32::store_some(s, s.add(f32::load_some(s, to), T::load_some(s, mask)), to);
                }
            }
            along_row(s, Plain, row);
            for (from, out) in row.chunks(LANES).zip(out.chunks_mut(LANES)) {
                T::store_some(s, f32::load_some(s, from), out);
            }
        }
    }
}

/// Softmax whose intermediates are rounded to fp16.
pub fn softmax_f16_steps(data: &mut [f32], length: usize, inner: usize) {
    softmax(Isa::best(), Half, data, length, inner);
}

fn softmax(isa: Isa, precision: impl Precision, data: &mut [f32], length: usize, inner: usize) {
    if length == 0 || inner == 0 {
        return;
    }
    let pieces = parallel::pieces(data.len().saturating_mul(COST));
    parallel::parts(data, length * inner, pieces, &|_, data| {
        COLUMN.with_borrow_mut(|column| isa.run(Softmax { precision, data, length, inner, column }));
    });
}

thread_local! {
    /// A column taken out of a narrow block; kept by each thread for the next one.
    static COLUMN: RefCell<AlignedBuf> = RefCell::default();
}

/// What intermediates are rounded to.
trait Precision: Copy + Send + Sync {
    fn round<S: Simd>(self, s: S, v: S::V) -> S::V;
    /// The sum of a row whose exponentials are done.
    fn sum<S: Simd>(self, s: S, row: &[f32]) -> f32;
}

#[derive(Clone, Copy)]
struct Plain;

impl Precision for Plain {
    #[inline(always)]
    fn round<S: Simd>(self, _: S, v: S::V) -> S::V {
        v
    }

    #[inline(always)]
    fn sum<S: Simd>(self, s: S, row: &[f32]) -> f32 {
        rows::reduce(s, rows::Distance(0.0), row)
    }
}

/// fp16, with sums taken one element at a time.
#[derive(Clone, Copy)]
struct Half;

impl Precision for Half {
    #[inline(always)]
    fn round<S: Simd>(self, s: S, v: S::V) -> S::V {
        s.round_f16(v)
    }

    #[inline(always)]
    fn sum<S: Simd>(self, _: S, row: &[f32]) -> f32 {
        let mut sum = 0.0;
        for x in row {
            sum = super::convert::round_f16(sum + x);
        }
        sum
    }
}

struct Softmax<'a, P> {
    precision: P,
    data: &'a mut [f32],
    length: usize,
    inner: usize,
    column: &'a mut AlignedBuf,
}

impl<P: Precision> Op for Softmax<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Softmax { precision, data, length, inner, column } = self;
        for block in data.chunks_exact_mut(length * inner) {
            match inner {
                1 => along_row(s, precision, block),
                // Too few columns for a vector of them: each is copied to a row and back.
                2..LANES => {
                    column.resize(length * size_of::<f32>());
                    let column: &mut [f32] = bytemuck::cast_slice_mut(column);
                    for first in 0..inner {
                        for (to, from) in column.iter_mut().zip(block[first..].iter().step_by(inner)) {
                            *to = *from;
                        }
                        along_row(s, precision, column);
                        for (from, to) in column.iter().zip(block[first..].iter_mut().step_by(inner)) {
                            *to = *from;
                        }
                    }
                }
                _ => {
                    for first in (0..inner).step_by(LANES) {
                        down_columns(s, precision, &mut block[first..], inner, LANES.min(inner - first));
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn along_row<S: Simd, P: Precision>(s: S, precision: P, row: &mut [f32]) {
    let max = s.splat(rows::reduce(s, rows::Max, row));
    for x in row.chunks_mut(LANES) {
        let e = exponential(s, precision, f32::load_some(s, x), max);
        f32::store_some(s, e, x);
    }
    let sum = s.splat(precision.sum(s, row));
    for x in row.chunks_mut(LANES) {
        let share = s.div(f32::load_some(s, x), sum);
        f32::store_some(s, precision.round(s, share), x);
    }
}

/// Up to eight neighbouring columns of a block whose rows are `stride` apart.
#[inline(always)]
fn down_columns<S: Simd, P: Precision>(s: S, precision: P, block: &mut [f32], stride: usize, width: usize) {
    let mut max = s.splat(f32::NEG_INFINITY);
    for row in block.chunks(stride) {
        max = s.max(f32::load_some(s, &row[..width]), max);
    }
    let mut sum = s.splat(0.0);
    for row in block.chunks_mut(stride) {
        let row = &mut row[..width];
        let e = exponential(s, precision, f32::load_some(s, row), max);
        f32::store_some(s, e, row);
        sum = precision.round(s, s.add(sum, e));
    }
    for row in block.chunks_mut(stride) {
        let row = &mut row[..width];
        let share = s.div(f32::load_some(s, row), sum);
        f32::store_some(s, precision.round(s, share), row);
    }
}

#[inline(always)]
fn exponential<S: Simd, P: Precision>(s: S, precision: P, x: S::V, max: S::V) -> S::V {
    let distance = precision.round(s, s.sub(x, max));
    precision.round(s, math::exp(s, distance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| f16::from_f32(((i * 37 % 101) as f32 - 40.0) / 9.0).to_f32()).collect()
    }

    fn naive(data: &mut [f32], length: usize, inner: usize, round: fn(f64) -> f64) {
        for block in data.chunks_exact_mut(length * inner) {
            for column in 0..inner {
                let at = |i: usize| i * inner + column;
                let max = (0..length).fold(f64::NEG_INFINITY, |m, i| m.max(f64::from(block[at(i)])));
                let e = |x: f32| round(round(f64::from(x) - max).exp());
                let sum = (0..length).fold(0.0, |sum, i| round(sum + e(block[at(i)])));
                (0..length).for_each(|i| block[at(i)] = round(e(block[at(i)]) / sum) as f32);
            }
        }
    }

    #[test]
    fn is_within_its_bound_along_any_axis() {
        for length in [1, 2, 7, 8, 9, 31, 33, 130] {
            for inner in [1, 2, 8, 11] {
                let mut expected = values(2 * length * inner);
                let mut found = expected.clone();
                let mut rounded = expected.clone();
                let mut expected_rounded = expected.clone();
                naive(&mut expected, length, inner, |x| x);
                naive(&mut expected_rounded, length, inner, |x| f16::from_f64(x).to_f64());
                softmax_f32(&mut found, length, inner);
                softmax_f16_steps(&mut rounded, length, inner);
                for i in 0..expected.len() {
                    assert!(
                        (found[i] - expected[i]).abs() <= expected[i] * 4e-6,
                        "{length} x {inner} at {i}"
                    );
                }
                assert_eq!(rounded, expected_rounded, "{length} x {inner}");
                for isa in Isa::all() {
                    let mut again = values(2 * length * inner);
                    softmax(isa, Plain, &mut again, length, inner);
                    assert_eq!(again, found, "{isa:?} {length} x {inner}");
                    let mut again = values(2 * length * inner);
                    softmax(isa, Half, &mut again, length, inner);
                    assert_eq!(again, rounded, "{isa:?} {length} x {inner}");
                }
            }
        }
    }

    #[test]
    fn rows_of_halves_are_rounded_once() {
        for length in [1, 7, 8, 33, 513] {
            let mut wide = values(3 * length);
            let narrow: Vec<f16> = wide.iter().map(|&x| f16::from_f32(x)).collect();
            let mut out = vec![f16::ZERO; narrow.len()];
            softmax_rows(&narrow, &mut out, length);
            softmax_f32(&mut wide, length, 1);
            assert!(out.iter().zip(&wide).all(|(&out, &wide)| out == f16::from_f32(wide)), "{length}");
        }
        softmax_rows::<f16>(&[], &mut [], 0);
    }

    #[test]
    fn masked_elements_vanish_and_hopeless_rows_are_nan() {
        let (low, nan) = (f32::NEG_INFINITY, f32::NAN);
        for isa in Isa::all() {
            for inner in [1, 3] {
                let mut data: Vec<f32> =
                    [low, 0.0, -1e30, 0.0].iter().flat_map(|&x| vec![x; inner]).collect();
                softmax(isa, Plain, &mut data, 4, inner);
                let expected: Vec<f32> = [0.0, 0.5, 0.0, 0.5].iter().flat_map(|&x| vec![x; inner]).collect();
                assert_eq!(data, expected);
                for bad in [[low, low], [f32::INFINITY, 0.0], [nan, 0.0]] {
                    let mut data: Vec<f32> = bad.iter().flat_map(|&x| vec![x; inner]).collect();
                    softmax(isa, Plain, &mut data, 2, inner);
                    assert!(data.iter().all(|x| x.is_nan()), "{bad:?} gives {data:?}");
                }
            }
        }
        softmax_f32(&mut [], 0, 3);
        softmax_f32(&mut [], 3, 1);
    }
}
