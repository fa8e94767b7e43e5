//! The Huberised centre of launch statistics: outlying launches count, but only so far.

use super::quantile::Ordered;
use super::{Direction, summary};

/// The smallest scale of residuals, on logarithms.
const LEAST_SCALE: f64 = 1e-4;
/// The smallest standard deviation of residuals, on logarithms.
const LEAST_DEVIATION: f64 = 2e-4;
/// Residuals beyond so many scales are clipped.
const CLIP: f64 = 3.0;

/// Centres of one or more arms with the deviation they share.
#[derive(Debug, Clone, PartialEq)]
pub struct Location {
    /// The centre of each arm.
    pub centres: Vec<f64>,
    /// Variance of one launch around its arm's centre.
    pub variance: f64,
    /// Degrees of freedom of that variance.
    pub degrees: f64,
}

/// Locates arms of launch statistics on a logarithmic scale. `None` if an arm is empty or there are no more
/// launches than arms.
pub fn locate(arms: &[&[f64]]) -> Option<Location> {
    let count: usize = arms.iter().map(|arm| arm.len()).sum();
    if arms.iter().any(|arm| arm.is_empty()) || count <= arms.len() {
        return None;
    }
    let medians: Vec<f64> = arms.iter().map(|arm| median(arm)).collect::<Option<_>>()?;
    let residuals: Vec<Vec<f64>> =
        arms.iter().zip(&medians).map(|(arm, median)| arm.iter().map(|y| y - median).collect()).collect();
    let magnitudes: Vec<f64> = residuals.iter().flatten().map(|r: &f64| r.abs()).collect();
    let small_sample = count as f64 / (count as f64 - 1.6);
    let scale = (1.4826 * median(&magnitudes)? * small_sample).max(LEAST_SCALE);
    let bound = CLIP * scale;

    let mut centres = Vec::new();
    let mut squares = 0.0;
    let mut least_share: f64 = 1.0;
    for (residuals, median) in residuals.iter().zip(&medians) {
        let clipped: Vec<f64> = residuals.iter().map(|r| r.clamp(-bound, bound)).collect();
        let inside = residuals.iter().filter(|r| r.abs() <= bound).count();
        let share = (inside as f64 / residuals.len() as f64).max(0.5);
        let mean = summary::mean(&clipped);
        centres.push(median + mean);
        squares += clipped.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / share.powi(2);
        least_share = least_share.min(share);
    }
    let degrees = (count - arms.len()) as f64;
    let variance = (squares / degrees).max(LEAST_DEVIATION.powi(2));
    Some(Location { centres, variance, degrees: degrees * least_share })
}

fn median(values: &[f64]) -> Option<f64> {
    // Logarithms and residuals may be of either sign, so the midpoint is taken plainly.
    let ordered = Ordered::new(values, Direction::LowerIsBetter)?;
    let values = ordered.values();
    let middle = values.len() / 2;
    Some(if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_outliers_it_is_the_mean_and_the_variance() {
        let arm = [1.00, 1.01, 1.02, 1.03, 1.04];
        let location = locate(&[&arm]).unwrap();
        assert!((location.centres[0] - 1.02).abs() < 1e-12);
        assert!((location.variance - 0.00025).abs() < 1e-12);
        assert_eq!(location.degrees, 4.0);
    }

    #[test]
    fn an_outlier_counts_only_so_far() {
        let quiet = locate(&[&[1.00, 1.01, 1.02, 1.03, 1.04, 1.05]]).unwrap();
        let outlier = locate(&[&[1.00, 1.01, 1.02, 1.03, 1.04, 9.0]]).unwrap();
        assert!(outlier.centres[0] - quiet.centres[0] < 0.02);
        assert!(outlier.degrees < quiet.degrees);
        assert!(outlier.variance > quiet.variance);
    }

    #[test]
    fn two_arms_share_their_deviation() {
        let location = locate(&[&[0.0, 0.1], &[1.0, 1.1]]).unwrap();
        assert!((location.centres[1] - location.centres[0] - 1.0).abs() < 1e-12);
        assert!((location.variance - 0.005).abs() < 1e-12);
        assert_eq!(location.degrees, 2.0);
    }

    #[test]
    fn too_few_launches_locate_nothing() {
        assert_eq!(locate(&[&[1.0]]), None);
        assert_eq!(locate(&[&[1.0, 2.0], &[]]), None);
        assert_eq!(locate(&[&[f64::NAN, 1.0]]), None);
    }

    #[test]
    fn equal_launches_keep_a_least_deviation() {
        assert_eq!(locate(&[&[2.0; 5]]).unwrap().variance, LEAST_DEVIATION.powi(2));
    }
}
