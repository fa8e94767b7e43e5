//! The Huberised centre of launch statistics: outlying launches count, but only so far.

/// The smallest scale of residuals, on logarithms.
const LEAST_SCALE: f64 = 1e-4;
/// The smallest standard deviation of residuals, on logarithms.
const LEAST_DEVIATION: f64 = 2e-4;
/// Residuals beyond so many scales are clipped.
const CLIP: f64 = 3.0;

/// Centres of one or more arms with the deviation they share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Location<const ARMS: usize> {
    /// The centre of each arm.
    pub centres: [f64; ARMS],
    /// Variance of one launch around its arm's centre.
    pub variance: f64,
    /// Degrees of freedom of that variance.
    pub degrees: f64,
    /// Robust scale of launches around their arm's median, before anything is clipped.
    pub scale: f64,
}

/// Locates arms of launch statistics on a logarithmic scale. `None` if an arm is empty, if there are no more
/// launches than arms, or if a value is not a finite number.
pub fn locate<const ARMS: usize>(arms: [&[f64]; ARMS]) -> Option<Location<ARMS>> {
    if arms.iter().any(|arm| arm.iter().any(|value| !value.is_finite())) {
        return None;
    }
    let sorted = arms.map(|arm| {
        let mut arm = arm.to_vec();
        arm.sort_unstable_by(f64::total_cmp);
        arm
    });
    locate_sorted(sorted.each_ref().map(Vec::as_slice), &mut Vec::new())
}

/// Locates arms that are in ascending order; `residuals` is room to work in.
pub(super) fn locate_sorted<const ARMS: usize>(
    arms: [&[f64]; ARMS],
    residuals: &mut Vec<f64>,
) -> Option<Location<ARMS>> {
    let count: usize = arms.iter().map(|arm| arm.len()).sum();
    if arms.iter().any(|arm| arm.is_empty()) || count <= ARMS {
        return None;
    }
    let medians = arms.map(middle);
    residuals.clear();
    for (arm, median) in arms.iter().zip(&medians) {
        residuals.extend(arm.iter().map(|value| (value - median).abs()));
    }
    residuals.sort_unstable_by(f64::total_cmp);
    let small_sample = count as f64 / (count as f64 - 1.6);
    let scale = (1.4826 * middle(residuals) * small_sample).max(LEAST_SCALE);
    let bound = CLIP * scale;

    let mut centres = medians;
    let mut squares = 0.0;
    let mut least_share: f64 = 1.0;
    for (arm, centre) in arms.iter().zip(&mut centres) {
        let median = *centre;
        let clipped = |value: &f64| (value - median).clamp(-bound, bound);
        let inside = arm.iter().filter(|value| (**value - median).abs() <= bound).count();
        let share = (inside as f64 / arm.len() as f64).max(0.5);
        let mean = arm.iter().map(clipped).sum::<f64>() / arm.len() as f64;
        *centre += mean;
        squares += arm.iter().map(|value| (clipped(value) - mean).powi(2)).sum::<f64>() / share.powi(2);
        least_share = least_share.min(share);
    }
    let degrees = (count - ARMS) as f64;
    let variance = (squares / degrees).max(LEAST_DEVIATION.powi(2));
    Some(Location { centres, variance, degrees: degrees * least_share, scale })
}

/// The median of values in order; plain midpoint, because logarithms and residuals may be of either sign.
fn middle(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_outliers_it_is_the_mean_and_the_variance() {
        let arm = [1.00, 1.01, 1.02, 1.03, 1.04];
        let location = locate([&arm]).unwrap();
        assert!((location.centres[0] - 1.02).abs() < 1e-12);
        assert!((location.variance - 0.00025).abs() < 1e-12);
        assert_eq!(location.degrees, 4.0);
    }

    #[test]
    fn an_outlier_counts_only_so_far() {
        let quiet = locate([&[1.00, 1.01, 1.02, 1.03, 1.04, 1.05]]).unwrap();
        let outlier = locate([&[1.00, 1.01, 1.02, 1.03, 1.04, 9.0]]).unwrap();
        assert!(outlier.centres[0] - quiet.centres[0] < 0.02);
        assert!(outlier.degrees < quiet.degrees);
        assert!(outlier.variance > quiet.variance);
    }

    #[test]
    fn two_arms_share_their_deviation() {
        let location = locate([&[0.0, 0.1], &[1.0, 1.1]]).unwrap();
        assert!((location.centres[1] - location.centres[0] - 1.0).abs() < 1e-12);
        assert!((location.variance - 0.005).abs() < 1e-12);
        assert_eq!(location.degrees, 2.0);
    }

    #[test]
    fn too_few_launches_locate_nothing() {
        assert_eq!(locate([&[1.0]]), None);
        assert_eq!(locate([&[1.0, 2.0], &[]]), None);
        assert_eq!(locate([&[f64::NAN, 1.0]]), None);
    }

    #[test]
    fn equal_launches_keep_a_least_deviation() {
        assert_eq!(locate([&[2.0; 5]]).unwrap().variance, LEAST_DEVIATION.powi(2));
    }
}
