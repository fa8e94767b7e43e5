//! Reductions of contiguous elements, computed in f32.
//!
//! Thirty-two sums are taken side by side and added at the end, so rounding errors grow with a thirty-second
//! of the length.

use super::simd::{Isa, LANES, Load, Op, Simd};

/// Vectors that are reduced side by side.
const WAYS: usize = 4;

/// The mean and the variance of a population.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct MeanVar {
    pub mean: f32,
    pub variance: f32,
}

/// The sum.
pub fn sum<T: Load>(x: &[T]) -> f32 {
    Isa::best().run(Reduce { f: Sum, x })
}

/// The sum of squares.
pub fn sum_squares<T: Load>(x: &[T]) -> f32 {
    Isa::best().run(Reduce { f: SquaredDistance(0.0), x })
}

/// The largest element that is not NaN; negative infinity if there is none.
pub fn max<T: Load>(x: &[T]) -> f32 {
    Isa::best().run(Reduce { f: Max, x })
}

/// Mean and variance, the latter from the distances to the former. Both are NaN if there are no elements.
pub fn mean_var<T: Load>(x: &[T]) -> MeanVar {
    mean_var_with(Isa::best(), x)
}

fn mean_var_with<T: Load>(isa: Isa, x: &[T]) -> MeanVar {
    let count = x.len() as f32;
    let mean = isa.run(Reduce { f: Sum, x }) / count;
    MeanVar { mean, variance: isa.run(Reduce { f: SquaredDistance(mean), x }) / count }
}

/// How an element is added to a total and a total to another.
pub(super) trait Fold: Copy {
    /// The total of no elements.
    const EMPTY: f32;
    /// An element that changes no total.
    fn neutral(self) -> f32;
    fn step<S: Simd>(self, s: S, total: S::V, x: S::V) -> S::V;
    fn join<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V;
    fn finish<S: Simd>(self, s: S, total: S::V) -> f32;
}

#[derive(Clone, Copy)]
pub(super) struct Sum;

impl Fold for Sum {
    const EMPTY: f32 = 0.0;

    #[inline(always)]
    fn neutral(self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn step<S: Simd>(self, s: S, total: S::V, x: S::V) -> S::V {
        s.add(total, x)
    }

    #[inline(always)]
    fn join<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.add(a, b)
    }

    #[inline(always)]
    fn finish<S: Simd>(self, s: S, total: S::V) -> f32 {
        s.reduce_add(total)
    }
}

/// The sum of squared distances from a number.
#[derive(Clone, Copy)]
struct SquaredDistance(f32);

impl Fold for SquaredDistance {
    const EMPTY: f32 = 0.0;

    #[inline(always)]
    fn neutral(self) -> f32 {
        self.0
    }

    #[inline(always)]
    fn step<S: Simd>(self, s: S, total: S::V, x: S::V) -> S::V {
        let distance = s.sub(x, s.splat(self.0));
        s.mul_add(distance, distance, total)
    }

    #[inline(always)]
    fn join<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.add(a, b)
    }

    #[inline(always)]
    fn finish<S: Simd>(self, s: S, total: S::V) -> f32 {
        s.reduce_add(total)
    }
}

/// The largest element; an element that is NaN is passed over.
#[derive(Clone, Copy)]
pub(super) struct Max;

impl Fold for Max {
    const EMPTY: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn neutral(self) -> f32 {
        f32::NEG_INFINITY
    }

    #[inline(always)]
    fn step<S: Simd>(self, s: S, total: S::V, x: S::V) -> S::V {
        s.max(x, total)
    }

    #[inline(always)]
    fn join<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.max(a, b)
    }

    #[inline(always)]
    fn finish<S: Simd>(self, s: S, total: S::V) -> f32 {
        s.reduce_max(total)
    }
}

/// The total of `x`.
#[inline(always)]
pub(super) fn reduce<S: Simd, F: Fold, T: Load>(s: S, f: F, x: &[T]) -> f32 {
    let mut totals = [s.splat(F::EMPTY); WAYS];
    let (groups, rest) = x.as_chunks::<{ WAYS * LANES }>();
    for group in groups {
        let (lanes, _) = group.as_chunks();
        for (total, lanes) in totals.iter_mut().zip(lanes) {
            *total = f.step(s, *total, T::load(s, lanes));
        }
    }
    for (total, rest) in totals.iter_mut().zip(rest.chunks(LANES)) {
        let mut lanes = [0.0; LANES];
        s.store(T::load_some(s, rest), &mut lanes);
        lanes[rest.len()..].fill(f.neutral());
        *total = f.step(s, *total, s.load(&lanes));
    }
    let [a, b, c, d] = totals;
    f.finish(s, f.join(s, f.join(s, a, b), f.join(s, c, d)))
}

struct Reduce<'a, F, T> {
    f: F,
    x: &'a [T],
}

impl<F: Fold, T: Load> Op for Reduce<'_, F, T> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        reduce(s, self.f, self.x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    const LENGTHS: [usize; 14] = [0, 1, 3, 7, 8, 9, 15, 16, 31, 32, 33, 63, 100, 1001];

    fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| f16::from_f32(((i * 37 % 101) as f32 - 40.0) / 7.0).to_f32()).collect()
    }

    #[test]
    fn sums_are_within_their_bound_and_the_same_everywhere() {
        for len in LENGTHS {
            // One element in front, so that the rest is not aligned.
            let x = &values(len + 1)[1..];
            let halves: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
            let wide = |f: fn(f64) -> f64| x.iter().map(|&x| f(f64::from(x))).sum::<f64>();
            let steps = (len / 32 + 6) as f64 * f64::from(f32::EPSILON);
            let (expected, size, squares) = (wide(|x| x), wide(f64::abs), wide(|x| x * x));
            for isa in Isa::all() {
                let found = isa.run(Reduce { f: Sum, x });
                assert!((f64::from(found) - expected).abs() <= steps * size, "{isa:?} {len}: {found}");
                assert_eq!(found, sum(x));
                assert_eq!(found, isa.run(Reduce { f: Sum, x: &halves }));
                let found = isa.run(Reduce { f: SquaredDistance(0.0), x });
                assert!((f64::from(found) - squares).abs() <= steps * squares, "{isa:?} {len}: {found}");
                assert_eq!(found, sum_squares(&halves));
            }
        }
    }

    #[test]
    fn variance_survives_a_large_mean() {
        for len in [7, 8, 100, 1001] {
            let x: Vec<f32> = values(len).iter().map(|x| x + 4096.0).collect();
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / len as f64;
            let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / len as f64;
            for isa in Isa::all() {
                let found = mean_var_with(isa, &x);
                assert_eq!(found, mean_var(&x));
                assert!((f64::from(found.mean) - mean).abs() <= mean * 1e-6, "{len}: {found:?}");
                assert!((f64::from(found.variance) - variance).abs() <= variance * 1e-5, "{len}: {found:?}");
            }
        }
        assert!(mean_var::<f32>(&[]).mean.is_nan());
    }

    #[test]
    fn max_passes_over_nan() {
        for len in LENGTHS {
            let mut x = values(len);
            let expected = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for isa in Isa::all() {
                assert_eq!(isa.run(Reduce { f: Max, x: &x }), expected);
            }
            x.extend([f32::NAN, f32::NEG_INFINITY]);
            assert_eq!(max(&x), expected);
        }
        assert_eq!(max(&[f32::NAN]), f32::NEG_INFINITY);
        assert_eq!(max(&[f32::NAN, f32::INFINITY, 1.0]), f32::INFINITY);
    }
}
