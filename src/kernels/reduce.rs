//! Reductions over any set of axes of a row-major tensor. Neighbouring axes of one kind are merged, so that any shape
//! is a few nested loops over runs of contiguous elements:
//!
//! ```text
//! [2, 3, 4, 5] over axes 1 and 2   ->   kept 2 | reduced 12 | kept 5: 24 runs of 5 elements
//! ```

use half::f16;
use smallvec::SmallVec;

use super::rows;

/// Which axes of a shape are reduced. Neighbouring axes of one kind are merged, axes of size 1 left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axes {
    groups: SmallVec<[Group; 6]>,
    kept: usize,
    reduced: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    size: usize,
    reduced: bool,
    /// Distance between neighbours among the kept or the reduced positions, whichever the group is.
    stride: usize,
}

/// Consecutive elements that are all kept or all reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of the first element.
    pub start: usize,
    /// How many there are.
    pub len: usize,
    /// Whether they are reduced to one.
    pub reduced: bool,
    /// Position of the first among the results; advances with each element unless the run is reduced.
    pub kept_at: usize,
    /// Position of the first among what is reduced to one result; advances if the run is reduced.
    pub reduced_at: usize,
}

impl Axes {
    /// The axes of `shape` for which `is_reduced` holds, against the others. Counts that no memory could hold are
    /// the largest there is.
    pub fn new(shape: &[usize], is_reduced: impl Fn(usize) -> bool) -> Axes {
        let mut groups: SmallVec<[Group; 6]> = SmallVec::new();
        for (axis, &size) in shape.iter().enumerate().filter(|&(_, &size)| size != 1) {
            let reduced = is_reduced(axis);
            match groups.last_mut() {
                Some(last) if last.reduced == reduced => last.size = last.size.saturating_mul(size),
                _ => groups.push(Group { size, reduced, stride: 0 }),
            }
        }
        let (mut kept, mut reduced) = (1, 1);
        for group in groups.iter_mut().rev() {
            let count = if group.reduced { &mut reduced } else { &mut kept };
            group.stride = *count;
            *count = count.saturating_mul(group.size);
        }
        Axes { groups, kept, reduced }
    }

    /// How many results there are.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// How many elements make one result.
    pub fn reduced(&self) -> usize {
        self.reduced
    }

    /// The length of the rows, if the elements of each result are such a row of consecutive elements.
    pub(super) fn rows(&self) -> Option<usize> {
        match self.groups[..] {
            [Group { reduced: true, .. }] | [Group { reduced: false, .. }, Group { reduced: true, .. }] => {
                Some(self.reduced)
            }
            _ => None,
        }
    }

    /// Calls `f` for every run, in memory order.
    pub fn runs(&self, mut f: impl FnMut(Run)) {
        if self.kept == 0 || self.reduced == 0 {
            return;
        }
        let mut run = Run { start: 0, len: 1, reduced: false, kept_at: 0, reduced_at: 0 };
        let Some((last, outer)) = self.groups.split_last() else { return f(run) };
        (run.len, run.reduced) = (last.size, last.reduced);
        let mut index: SmallVec<[usize; 6]> = smallvec::smallvec![0; outer.len()];
        loop {
            f(run);
            run.start += run.len;
            let mut axis = outer.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                let group = &outer[axis];
                let at = if group.reduced { &mut run.reduced_at } else { &mut run.kept_at };
                index[axis] += 1;
                *at += group.stride;
                if index[axis] < group.size {
                    break;
                }
                *at -= group.stride * group.size;
                index[axis] = 0;
            }
        }
    }
}

/// Folds each element into its result: `results[r] = step(results[r], element, r)`.
pub fn fold<T: Copy, A: Copy>(axes: &Axes, x: &[T], results: &mut [A], step: impl Fn(A, T, usize) -> A) {
    axes.runs(|run| {
        let elements = &x[run.start..run.start + run.len];
        if run.reduced {
            let mut result = results[run.kept_at];
            for &element in elements {
                result = step(result, element, run.kept_at);
            }
            results[run.kept_at] = result;
        } else {
            for (i, &element) in elements.iter().enumerate() {
                let result = &mut results[run.kept_at + i];
                *result = step(*result, element, run.kept_at + i);
            }
        }
    });
}

/// What becomes of the elements that make one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Reduction {
    L1Norm,
    L2Norm,
    LogSum,
    LogSumExp,
    Max,
    Mean,
    Min,
    Prod,
    Sum,
    SumSquare,
}

/// Rounds to the nearest fp16 value if `round_steps` says so.
pub(super) fn rounded(value: f64, round_steps: bool) -> f64 {
    if round_steps { f16::from_f64(value).to_f64() } else { value }
}

/// Adds `term(element, result)` of every element to its result. `total` may give the sum over consecutive
/// elements of one result at once; where that is not a normal number, the terms are added in f64. With
/// `round_steps` every term and sum is rounded to fp16.
pub fn add_up(
    axes: &Axes,
    x: &[f32],
    sums: &mut [f64],
    round_steps: bool,
    total: Option<fn(&[f32]) -> f64>,
    term: impl Fn(f32, usize) -> f64,
) {
    if round_steps {
        return fold(axes, x, sums, |sum, x, at| rounded(sum + rounded(term(x, at), true), true));
    }
    axes.runs(|run| {
        let elements = &x[run.start..run.start + run.len];
        if run.reduced {
            let total = total.map(|total| total(elements)).filter(|&total| is_precise(total));
            sums[run.kept_at] += total.unwrap_or_else(|| sum_of(elements, |x| term(x, run.kept_at)));
        } else {
            for (at, &x) in (run.kept_at..).zip(elements) {
                sums[at] += term(x, at);
            }
        }
    });
}

/// Whether a sum taken in f32 has neither overflowed nor lost terms that were too small.
fn is_precise(sum: f64) -> bool {
    (1e-30..=f64::from(f32::MAX)).contains(&sum.abs())
}

/// The sum of the terms, in a fixed order of several independent chains.
fn sum_of(elements: &[f32], term: impl Fn(f32) -> f64) -> f64 {
    // An f64 addition takes several cycles; chains overlap.
    const CHAINS: usize = 8;
    let mut sums = [0.0; CHAINS];
    let chunks = elements.chunks_exact(CHAINS);
    let rest: f64 = chunks.remainder().iter().map(|&x| term(x)).sum();
    for chunk in chunks {
        for (sum, &x) in sums.iter_mut().zip(chunk) {
            *sum += term(x);
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// The largest element of each result; NaN if any is.
fn largest(axes: &Axes, x: &[f32], out: &mut [f32]) {
    out.fill(f32::NEG_INFINITY);
    let larger = |max: f32, x: f32| if x > max || x.is_nan() { x } else { max };
    axes.runs(|run| {
        let elements = &x[run.start..run.start + run.len];
        if !run.reduced {
            for (max, &x) in out[run.kept_at..].iter_mut().zip(elements) {
                *max = larger(*max, x);
            }
        // `rows::max` passes over NaN. The sum is NaN if an element is, or if infinities of both signs meet.
        } else if rows::sum(elements).is_nan() {
            out[run.kept_at] = elements.iter().fold(out[run.kept_at], |max, &x| larger(max, x));
        } else if !out[run.kept_at].is_nan() {
            out[run.kept_at] = larger(out[run.kept_at], rows::max(elements));
        }
    });
}

/// Reduces floats. `sums` is working memory, one per result. With `round_steps` every step is rounded to fp16.
pub fn reduce_f32(
    reduction: Reduction,
    axes: &Axes,
    x: &[f32],
    out: &mut [f32],
    sums: &mut [f64],
    round_steps: bool,
) {
    let count = axes.reduced() as f64;
    sums.fill(if reduction == Reduction::Prod { 1.0 } else { 0.0 });
    match reduction {
        Reduction::Max => return largest(axes, x, out),
        Reduction::Min => {
            out.fill(f32::INFINITY);
            return fold(axes, x, out, |min, x, _| if x < min || x.is_nan() { x } else { min });
        }
        Reduction::LogSumExp => {
            largest(axes, x, out);
            add_up(axes, x, sums, round_steps, None, |x, at| {
                // The largest is subtracted, so that nothing overflows; inf - inf would be NaN.
                let below = if x == out[at] { 0.0 } else { f64::from(x) - f64::from(out[at]) };
                rounded(below, round_steps).exp()
            });
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = (f64::from(*out) + rounded(sum.ln(), round_steps)) as f32;
            }
            return;
        }
        Reduction::L1Norm => add_up(axes, x, sums, round_steps, None, |x, _| f64::from(x.abs())),
        Reduction::L2Norm | Reduction::SumSquare => {
            add_up(axes, x, sums, round_steps, Some(rows::sum_squares), |x, _| f64::from(x) * f64::from(x));
        }
        Reduction::LogSum | Reduction::Mean | Reduction::Sum => {
            add_up(axes, x, sums, round_steps, Some(rows::sum), |x, _| f64::from(x));
        }
        Reduction::Prod => {
            fold(axes, x, sums, |product, x, _| rounded(product * f64::from(x), round_steps));
        }
    }
    for (out, &sum) in out.iter_mut().zip(&*sums) {
        *out = match reduction {
            Reduction::L2Norm => sum.sqrt(),
            Reduction::LogSum => sum.ln(),
            Reduction::Mean => sum / count,
            _ => sum,
        } as f32;
    }
}

/// Reduces integers: sums and products wrap, other results are truncated. `sums` is working memory, one per
/// result.
pub fn reduce_i32(reduction: Reduction, axes: &Axes, x: &[i32], out: &mut [i32], sums: &mut [i64]) {
    let count = axes.reduced() as f64;
    sums.fill(i64::from(reduction == Reduction::Prod));
    match reduction {
        Reduction::Max => {
            out.fill(i32::MIN);
            return fold(axes, x, out, |max, x, _| x.max(max));
        }
        Reduction::Min => {
            out.fill(i32::MAX);
            return fold(axes, x, out, |min, x, _| x.min(min));
        }
        Reduction::LogSumExp => {
            let sums: &mut [f64] = bytemuck::cast_slice_mut(sums);
            out.fill(i32::MIN);
            fold(axes, x, out, |max, x, _| x.max(max));
            sums.fill(0.0);
            fold(axes, x, sums, |sum, x, at| sum + (f64::from(x) - f64::from(out[at])).exp());
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = (f64::from(*out) + sum.ln()) as i32;
            }
            return;
        }
        Reduction::L1Norm => fold(axes, x, sums, |sum, x, _| sum.wrapping_add(i64::from(x).abs())),
        Reduction::L2Norm | Reduction::SumSquare => {
            fold(axes, x, sums, |sum, x, _| sum.wrapping_add(i64::from(x) * i64::from(x)));
        }
        Reduction::LogSum | Reduction::Mean | Reduction::Sum => {
            fold(axes, x, sums, |sum, x, _| sum.wrapping_add(i64::from(x)));
        }
        Reduction::Prod => fold(axes, x, sums, |product, x, _| product.wrapping_mul(i64::from(x))),
    }
    for (out, &sum) in out.iter_mut().zip(&*sums) {
        *out = match reduction {
            Reduction::L2Norm => (sum as f64).sqrt() as i32,
            Reduction::LogSum => (sum as f64).ln() as i32,
            Reduction::Mean => (sum as f64 / count) as i32,
            _ => sum as i32,
        };
    }
}

/// Finds, along the middle axis of `[outer, length, inner]` data, the first element that no other is `better`
/// than, and calls `store(result, index)`. An element that compares to nothing, such as NaN, is best.
pub fn first_best<T: Copy + PartialOrd>(
    x: &[T],
    length: usize,
    inner: usize,
    better: impl Fn(T, T) -> bool,
    mut store: impl FnMut(usize, usize),
) {
    if length == 0 || inner == 0 {
        return;
    }
    let is_unordered = |x: T| x.partial_cmp(&x).is_none();
    for (outer, block) in x.chunks_exact(length * inner).enumerate() {
        for column in 0..inner {
            let (mut best, mut at) = (block[column], 0);
            for i in 1..length {
                let element = block[i * inner + column];
                if is_unordered(best) {
                    break;
                }
                if better(element, best) || is_unordered(element) {
                    (best, at) = (element, i);
                }
            }
            store(outer * inner + column, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce(reduction: Reduction, axes: &Axes, x: &[f32], round_steps: bool) -> Vec<f32> {
        let (mut out, mut sums) = (vec![0.0; axes.kept()], vec![0.0; axes.kept()]);
        reduce_f32(reduction, axes, x, &mut out, &mut sums, round_steps);
        out
    }

    #[test]
    fn axes_apart_are_reduced_together() {
        let x: Vec<f32> = (0..24u8).map(f32::from).collect();
        let outer_and_inner = Axes::new(&[2, 3, 4], |axis| axis != 1);
        assert_eq!(reduce(Reduction::Sum, &outer_and_inner, &x, false), [60.0, 92.0, 124.0]);
        let middle = Axes::new(&[2, 3, 4], |axis| axis == 1);
        assert_eq!(reduce(Reduction::Mean, &middle, &x, false), [4.0, 5.0, 6.0, 7.0, 16.0, 17.0, 18.0, 19.0]);
        assert_eq!(middle.reduced(), 3);
        assert_eq!(reduce(Reduction::Max, &Axes::new(&[24], |_| false), &x, false), x);
    }

    #[test]
    fn steps_round_to_fp16_when_asked() {
        let x = [2048.0, 1.0, 1.0];
        let all = Axes::new(&[3], |_| true);
        assert_eq!(reduce(Reduction::Sum, &all, &x, false), [2050.0]);
        assert_eq!(reduce(Reduction::Sum, &all, &x, true), [2048.0]);
        assert_eq!(reduce(Reduction::SumSquare, &all, &[300.0, 0.0, 0.0], true), [f32::INFINITY]);
    }

    #[test]
    fn sums_beyond_f32_are_taken_in_f64() {
        let all = Axes::new(&[3], |_| true);
        assert_eq!(reduce(Reduction::L2Norm, &all, &[3e20, 4e20, 0.0], false), [5e20]);
        assert_eq!(reduce(Reduction::L2Norm, &all, &[3e-30, 4e-30, 0.0], false), [5e-30]);
        assert_eq!(reduce(Reduction::Sum, &all, &[3e38, 3e38, -3e38], false), [3e38]);
    }

    #[test]
    fn the_largest_is_nan_if_any_element_is() {
        let rows = Axes::new(&[3, 2], |axis| axis == 1);
        let x = [1.0, f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 2.0, 3.0];
        let found = reduce(Reduction::Max, &rows, &x, false);
        assert!(found[0].is_nan() && found[1..] == [f32::INFINITY, 3.0], "{found:?}");
        let ends = Axes::new(&[3, 1, 2], |axis| axis != 1);
        assert!(reduce(Reduction::Max, &ends, &x, false)[0].is_nan());
    }

    #[test]
    fn log_sum_exp_neither_overflows_nor_loses_infinities() {
        let rows = Axes::new(&[3, 2], |axis| axis == 1);
        let x = [1000.0, 1000.0, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY, 0.0];
        assert_eq!(
            reduce(Reduction::LogSumExp, &rows, &x, false),
            [1_000.693_2, f32::NEG_INFINITY, f32::INFINITY]
        );
    }

    #[test]
    fn integers_wrap_and_truncate() {
        let x = [-7, 2, i32::MAX, i32::MAX];
        let all = Axes::new(&[2], |_| true);
        let reduce = |reduction, x: &[i32]| {
            let (mut out, mut sums) = ([0], [0]);
            reduce_i32(reduction, &all, x, &mut out, &mut sums);
            out[0]
        };
        assert_eq!(reduce(Reduction::Mean, &x[..2]), -2);
        assert_eq!(reduce(Reduction::L2Norm, &x[..2]), 7);
        assert_eq!(reduce(Reduction::LogSumExp, &x[..2]), 2);
        assert_eq!(reduce(Reduction::Sum, &x[2..]), -2);
        assert_eq!(reduce(Reduction::Mean, &x[2..]), i32::MAX);
    }

    #[test]
    fn the_first_of_equals_and_any_nan_is_best() {
        let mut found = Vec::new();
        let x = [1.0, 3.0, 3.0, 2.0, f32::NAN, 9.0];
        first_best(&x, 3, 1, |a, b| a > b, |_, at| found.push(at));
        first_best(&[1, 5, 4, 0], 2, 2, |a, b| a < b, |_, at| found.push(at));
        assert_eq!(found, [1, 1, 0, 1]);
    }
}
