//! Reductions of contiguous elements.
//!
//! Sums are blocked: in f32, thirty-two side by side over blocks of `BLOCK` elements, and the blocks added in f64. So
//! rounding errors do not grow with the length, at the speed of f32. Variances are those of shifted data (Chan, Golub &
//! LeVeque 1983).

use super::simd::{Isa, LANES, Load, Op, Simd};

/// Vectors that are reduced side by side.
const WAYS: usize = 4;
/// Elements that are summed in f32.
const BLOCK: usize = 1024;

/// The mean and the variance of a population.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct MeanVar {
    pub mean: f64,
    pub variance: f64,
}

/// The sum, within 3e-6 of the sum of magnitudes. Not finite if that of a block exceeds f32.
pub fn sum<T: Load>(x: &[T]) -> f64 {
    total(Isa::best(), Distance(0.0), x)
}

/// The sum of squares, within 3e-6 of its size. Not finite if that of a block exceeds f32; squares below the
/// range of f32 are lost.
pub fn sum_squares<T: Load>(x: &[T]) -> f64 {
    total(Isa::best(), SquaredDistance(0.0), x)
}

/// The largest element that is not NaN; negative infinity if there is none.
pub fn max<T: Load>(x: &[T]) -> f32 {
    Isa::best().run(Reduce { f: Max, x })
}

/// Mean and variance, both from the distances to a first estimate of the mean, so neither suffers from a mean
/// that is large against the variance. Both are NaN if there are no elements.
pub fn mean_var<T: Load>(x: &[T]) -> MeanVar {
    mean_var_with(Isa::best(), x)
}

fn mean_var_with<T: Load>(isa: Isa, x: &[T]) -> MeanVar {
    let count = x.len() as f64;
    let estimate = (total(isa, Distance(0.0), x) / count) as f32;
    let shift = total(isa, Distance(estimate), x) / count;
    let square = total(isa, SquaredDistance(estimate), x) / count;
    if !square.is_finite() {
        return wide_mean_var(x);
    }
    let variance = square - shift * shift;
    // Not `max(0.0)`: a NaN stays NaN.
    MeanVar { mean: f64::from(estimate) + shift, variance: if variance < 0.0 { 0.0 } else { variance } }
}

/// [`mean_var`] of elements whose squares exceed f32.
fn wide_mean_var<T: Load>(x: &[T]) -> MeanVar {
    let wide = || x.iter().map(|x| f64::from(x.widen()));
    let mean = wide().sum::<f64>() / x.len() as f64;
    let variance = wide().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
    MeanVar { mean, variance }
}

fn total<T: Load>(isa: Isa, f: impl Fold, x: &[T]) -> f64 {
    x.chunks(BLOCK).map(|x| f64::from(isa.run(Reduce { f, x }))).sum()
}

/// How an element is added to a total and a total to another; totals are sums unless it says otherwise.
pub(super) trait Fold: Copy {
    /// The total of no elements.
    const EMPTY: f32;
    /// An element that changes no total.
    fn neutral(self) -> f32;
    fn step<S: Simd>(self, s: S, total: S::V, x: S::V) -> S::V;

    #[inline(always)]
    fn join<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.add(a, b)
    }

    #[inline(always)]
    fn finish<S: Simd>(self, s: S, total: S::V) -> f32 {
        s.reduce_add(total)
    }
}

/// The sum of distances from a number.
#[derive(Clone, Copy)]
pub(super) struct Distance(pub(super) f32);

impl Fold for Distance {
    const EMPTY: f32 = 0.0;

    #[inline(always)]
    fn neutral(self) -> f32 {
        self.0
    }

    #[inline(always)]
    fn step<S: Simd>(self, s: S, total: S::V, x: S::V) -> S::V {
        s.add(total, s.sub(x, s.splat(self.0)))
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
        // Zeros would count as distances from the estimate.
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

    const LENGTHS: [usize; 14] = [0, 1, 3, 7, 8, 9, 15, 16, 31, 32, 33, 63, 100, 2049];

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
            let (expected, size, squares) = (wide(|x| x), wide(f64::abs), wide(|x| x * x));
            for isa in Isa::all() {
                let found = total(isa, Distance(0.0), x);
                assert!((found - expected).abs() <= 3e-6 * size, "{isa:?} {len}: {found}");
                assert_eq!(found, sum(x));
                assert_eq!(found, total(isa, Distance(0.0), &halves));
                let found = total(isa, SquaredDistance(0.0), x);
                assert!((found - squares).abs() <= 3e-6 * squares, "{isa:?} {len}: {found}");
                assert_eq!(found, sum_squares(&halves));
            }
        }
    }

    #[test]
    fn long_rows_lose_no_more_than_short_ones() {
        let x: Vec<f32> = (0..1_000_000).map(|i| 1.0 + (i * 7 % 13) as f32 / 13.0).collect();
        let wide: f64 = x.iter().map(|&x| f64::from(x)).sum();
        assert!((sum(&x) / wide - 1.0).abs() < 1e-6, "{} for {wide}", sum(&x));
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
                assert!((found.mean - mean).abs() <= 1e-6 * variance.sqrt(), "{len}: {found:?}");
                assert!((found.variance - variance).abs() <= variance * 3e-6, "{len}: {found:?}");
            }
        }
        assert_eq!(mean_var(&[1e30f32, -1e30]).variance, f64::from(1e30f32).powi(2));
        assert_eq!(mean_var(&[0.1f32; 77]).variance, 0.0);
        for row in [&[][..], &[1.0, f32::NAN], &[f32::INFINITY, 0.0]] {
            assert!(mean_var(row).variance.is_nan());
        }
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
