//! The Huberised centre of launch statistics: outlying launches count, but only so far.
//!
//! A one-step Huber M-estimator of location per arm, with a scale that all arms share:
//!
//! ```text
//! m[a] = median of arm a                        s = 1.4826 * MAD * n / (n - 1.6)
//! w(x) = clip(x, m[a] - 3 s, m[a] + 3 s)        c[a] = mean of w(x) over arm a
//! variance = sum over arms of sum (w(x) - c[a])^2 / share[a]^2 / (n - arms)
//! ```
//!
//! MAD is the median of `|x - m[a]|` over all arms; 1.4826 makes it the standard deviation of a normal sample, and
//! `n / (n - 1.6)` corrects small samples. `share[a]` is the part of arm a that was not clipped: a clipped launch counts
//! as a lost one. P. J. Huber, "Robust estimation of a location parameter", Ann. Math. Statist. 35 (1964).

use super::median::median_of_sorted;

/// The smallest scale of residuals, on logarithms. A coarse clock can make launches look equal; without a floor any
/// shift of them would be significant.
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
    locate_sorted(sorted.each_ref().map(Vec::as_slice))
}

/// Locates arms that are in ascending order.
pub(super) fn locate_sorted<const ARMS: usize>(arms: [&[f64]; ARMS]) -> Option<Location<ARMS>> {
    let count: usize = arms.iter().map(|arm| arm.len()).sum();
    if arms.iter().any(|arm| arm.is_empty()) || count <= ARMS {
        return None;
    }
    let medians = arms.map(median_of_sorted);
    let small_sample = count as f64 / (count as f64 - 1.6);
    let scale = (1.4826 * middle_distance(arms, medians, count) * small_sample).max(LEAST_SCALE);
    let bound = CLIP * scale;

    let mut centres = medians;
    let mut squares = 0.0;
    let mut least_share: f64 = 1.0;
    for (arm, centre) in arms.iter().zip(&mut centres) {
        let median = *centre;
        let clipped = |value: &f64| (value - median).clamp(-bound, bound);
        let inside = arm.iter().filter(|value| (**value - median).abs() <= bound).count();
        // Bounded below: of an arm that is mostly outliers nothing would be left to divide by.
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

/// The median of all distances from the medians. Distances of an arm in order grow from its middle to either side, so
/// that they are merged instead of sorted.
fn middle_distance<const ARMS: usize>(arms: [&[f64]; ARMS], medians: [f64; ARMS], count: usize) -> f64 {
    let below =
        |arm: usize, end: usize| end.checked_sub(1).map_or(f64::INFINITY, |i| medians[arm] - arms[arm][i]);
    let above =
        |arm: usize, start: usize| arms[arm].get(start).map_or(f64::INFINITY, |value| value - medians[arm]);
    let mut ends = arms.map(|arm| arm.len() / 2);
    let mut starts = ends;
    let mut next: [[f64; 2]; ARMS] =
        std::array::from_fn(|arm| [below(arm, ends[arm]), above(arm, starts[arm])]);
    let (mut last, mut before) = (0.0, 0.0);
    // Merged up to rank `count / 2`: that is the median, or the upper of the two it lies between.
    for _ in 0..=count / 2 {
        let (mut arm, mut side) = (0, 0);
        for candidate in 0..ARMS {
            for which in 0..2 {
                if next[candidate][which] < next[arm][side] {
                    (arm, side) = (candidate, which);
                }
            }
        }
        (before, last) = (last, next[arm][side]);
        if side == 0 {
            ends[arm] -= 1;
            next[arm][0] = below(arm, ends[arm]);
        } else {
            starts[arm] += 1;
            next[arm][1] = above(arm, starts[arm]);
        }
    }
    if count % 2 == 1 { last } else { f64::midpoint(before, last) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn merging_finds_the_median_of_sorted_distances(
            first in prop::collection::vec(-1.0f64..1.0, 1..12),
            second in prop::collection::vec(-1.0f64..1.0, 1..12),
        ) {
            let mut arms = [first, second];
            arms.iter_mut().for_each(|arm| arm.sort_by(f64::total_cmp));
            let slices = arms.each_ref().map(Vec::as_slice);
            let medians = slices.map(median_of_sorted);
            let mut distances: Vec<f64> =
                slices.iter().zip(medians).flat_map(|(arm, m)| arm.iter().map(move |v| (v - m).abs())).collect();
            distances.sort_by(f64::total_cmp);
            let found = middle_distance(slices, medians, distances.len());
            prop_assert!((found - median_of_sorted(&distances)).abs() < 1e-12);
        }
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
