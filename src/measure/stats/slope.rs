//! Trends: the Theil-Sen slope with its interval from Kendall's statistic.
//!
//! `b = median over i < j of (y[j] - y[i]) / (x[j] - x[i])`. With `n` points and `N` slopes in order, the interval is
//! from slope `(N - C) / 2` to slope `(N + C) / 2`, where `C = z * sqrt(n (n - 1) (2 n + 5) / 18)` and `z` is the normal
//! quantile. Up to 29 % of the points may be outliers. P. K. Sen, "Estimates of the regression coefficient based on
//! Kendall's tau", JASA 63 (1968).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use super::Interval;
use super::median::median_of_sorted;

/// A trend of y over x.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slope {
    /// The median of the slopes between all pairs of points.
    pub per_step: f64,
    /// Confidence interval of the slope.
    pub interval: Interval,
}

/// The trend of points (x, y). It does not care about single outliers. `None` for fewer than four points with
/// different x, or values that are not finite. The work grows with the square of the number of points.
pub fn theil_sen(points: &[(f64, f64)], confidence: f64) -> Option<Slope> {
    let finite = points.iter().all(|(x, y)| x.is_finite() && y.is_finite());
    if points.len() < 4 || !finite {
        return None;
    }
    let mut slopes = Vec::with_capacity(points.len() * (points.len() - 1) / 2);
    for (i, (x0, y0)) in points.iter().enumerate() {
        slopes
            .extend(points[i + 1..].iter().filter(|(x1, _)| x1 != x0).map(|(x1, y1)| (y1 - y0) / (x1 - x0)));
    }
    // Too many points share their x.
    if slopes.len() < points.len() {
        return None;
    }
    slopes.sort_by(f64::total_cmp);
    let n = points.len() as f64;
    // Standard deviation of Kendall's S without ties.
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let normal = Normal::new(0.0, 1.0).ok()?;
    let reach = normal.inverse_cdf(0.5 + confidence / 2.0) * deviation;
    let count = slopes.len() as f64;
    let last = slopes.len() - 1;
    let low = (((count - reach) / 2.0).floor().max(0.0) as usize).min(last);
    let high = (((count + reach) / 2.0).ceil() as usize).min(last);
    let per_step = median_of_sorted(&slopes);
    Some(Slope { per_step, interval: Interval { low: slopes[low], high: slopes[high], confidence } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(n: usize, f: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..n).map(|i| (i as f64, f(i as f64))).collect()
    }

    #[test]
    fn a_line_gives_its_slope() {
        let slope = theil_sen(&points(20, |x| 3.0 + 0.5 * x), 0.99).unwrap();
        assert_eq!((slope.per_step, slope.interval.low, slope.interval.high), (0.5, 0.5, 0.5));
    }

    #[test]
    fn an_outlier_changes_nothing_much() {
        let mut line = points(20, |x| 0.5 * x);
        line[7].1 = 1e6;
        assert!((theil_sen(&line, 0.99).unwrap().per_step - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_constant_has_no_trend() {
        let slope = theil_sen(&points(50, |_| 4.0), 0.99).unwrap();
        assert_eq!((slope.interval.low, slope.interval.high), (0.0, 0.0));
    }

    #[test]
    fn too_little_gives_nothing() {
        assert_eq!(theil_sen(&points(3, |x| x), 0.95), None);
        assert_eq!(theil_sen(&[(1.0, 1.0); 9], 0.95), None);
        assert_eq!(theil_sen(&[(0.0, 0.0), (1.0, f64::NAN), (2.0, 0.0), (3.0, 0.0)], 0.95), None);
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_slope_and_moves_with_the_data(noise in prop::collection::vec(-1.0f64..1.0, 8..40), tilt in -5.0f64..5.0) {
            let flat: Vec<(f64, f64)> = noise.iter().enumerate().map(|(i, e)| (i as f64, *e)).collect();
            let tilted: Vec<(f64, f64)> = flat.iter().map(|(x, y)| (*x, y + tilt * x)).collect();
            let (a, b) = (theil_sen(&flat, 0.95).unwrap(), theil_sen(&tilted, 0.95).unwrap());
            prop_assert!(a.interval.low <= a.per_step && a.per_step <= a.interval.high);
            prop_assert!((b.per_step - a.per_step - tilt).abs() < 1e-9);
            prop_assert!((b.interval.low - a.interval.low - tilt).abs() < 1e-9);
        }
    }
}
