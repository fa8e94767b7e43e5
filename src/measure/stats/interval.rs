//! Confidence intervals from Student's t: `centre -+ t(confidence, degrees) * sqrt(variance / n)`.
//!
//! The interval of a percentile has the launch as its unit (a cluster), because requests of one launch are correlated:
//! it is the interval of the Huberised centre of each launch's percentile, on logarithms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::quantile::Ordered;
use super::summary::{mean, standard_deviation};
use super::{Direction, Percentile, locate};

/// A range that covers the true value with the stated confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// The smaller end.
    pub low: f64,
    /// The larger end.
    pub high: f64,
    /// How often such a range covers the true value, between 0 and 1.
    pub confidence: f64,
}

/// The interval of a mean; `None` for fewer than two values.
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values);
    let error = standard_deviation(values, mean)? / (values.len() as f64).sqrt();
    let reach = students_t(confidence, (values.len() - 1) as f64)? * error;
    Some(Interval { low: mean - reach, high: mean + reach, confidence })
}

/// The interval of a percentile, from that percentile of each launch. The launch is the unit: it takes at least
/// two launches, and more requests per launch do not narrow it. Values must be positive.
pub fn launch_interval(
    launches: &[Vec<f64>],
    direction: Direction,
    percentile: Percentile,
    confidence: f64,
) -> Option<Interval> {
    let statistics: Vec<f64> = launches
        .iter()
        .filter(|launch| launch.iter().all(|&value| value > 0.0))
        .filter_map(|launch| Ordered::new(launch, direction))
        .map(|launch| direction.slow_log(launch.quantile(percentile.share())))
        .collect();
    let location = locate([&statistics])?;
    let error = (location.variance / statistics.len() as f64).sqrt();
    let reach = students_t(confidence, location.degrees)? * error;
    // A rate falls as its slow-oriented logarithm grows, so that its ends swap.
    let ends =
        [location.centres[0] - reach, location.centres[0] + reach].map(|log| direction.from_slow_log(log));
    Some(Interval { low: ends[0].min(ends[1]), high: ends[0].max(ends[1]), confidence })
}

/// How many standard errors a two-sided interval reaches to either side; `None` if that is not defined.
pub fn students_t(confidence: f64, degrees: f64) -> Option<f64> {
    if !(0.0..1.0).contains(&confidence) {
        return None;
    }
    let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some(distribution.inverse_cdf(0.5 + confidence / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabled_values_of_t() {
        for (degrees, expected) in [(1.0, 12.706), (2.0, 4.303), (9.0, 2.262), (30.0, 2.042)] {
            assert!((students_t(0.95, degrees).unwrap() - expected).abs() < 1e-3, "{degrees}");
        }
        assert_eq!(students_t(1.0, 3.0), None);
        assert_eq!(students_t(0.95, 0.0), None);
    }

    #[test]
    fn the_interval_of_a_mean() {
        let interval = mean_interval(&[1.0, 2.0, 3.0], 0.95).unwrap();
        let reach = 4.302_652_7 / 3f64.sqrt();
        assert!((interval.low - (2.0 - reach)).abs() < 1e-6);
        assert!((interval.high - (2.0 + reach)).abs() < 1e-6);
        assert_eq!(mean_interval(&[1.0], 0.95), None);
    }

    #[test]
    fn requests_do_not_narrow_the_interval_but_launches_do() {
        let launches = |count: usize, requests: usize| -> Vec<Vec<f64>> {
            (0..count).map(|i| vec![100.0 + (i % 3) as f64; requests]).collect()
        };
        let width = |launches: &[Vec<f64>]| {
            let interval =
                launch_interval(launches, Direction::LowerIsBetter, Percentile::P50, 0.95).unwrap();
            assert!(interval.low < 101.0 && interval.high > 101.0);
            interval.high - interval.low
        };
        assert!((width(&launches(6, 5)) - width(&launches(6, 500))).abs() < 1e-9);
        assert!(width(&launches(12, 5)) < width(&launches(6, 5)));
    }

    #[test]
    fn one_launch_has_no_interval() {
        let one = [vec![1.0, 2.0, 3.0]];
        assert_eq!(launch_interval(&one, Direction::LowerIsBetter, Percentile::P50, 0.95), None);
    }

    #[test]
    fn rates_are_judged_as_their_times_are() {
        let times = [vec![10.0, 11.0], vec![12.0, 9.0], vec![10.0, 10.0]];
        let rates: Vec<Vec<f64>> = times.iter().map(|l| l.iter().map(|t| 1000.0 / t).collect()).collect();
        let slow = launch_interval(&times, Direction::LowerIsBetter, Percentile::P95, 0.9).unwrap();
        let rate = launch_interval(&rates, Direction::HigherIsBetter, Percentile::P95, 0.9).unwrap();
        assert!((rate.low - 1000.0 / slow.high).abs() < 1e-9);
        assert!((rate.high - 1000.0 / slow.low).abs() < 1e-9);
    }
}
