//! A sample in a few numbers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Direction, Ordered, Percentile};

/// A sample in a few numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// How many values there are.
    pub count: usize,
    /// Their arithmetic mean.
    pub mean: f64,
    /// Their standard deviation, from two values on.
    pub standard_deviation: Option<f64>,
    /// The smallest.
    pub minimum: f64,
    /// The largest.
    pub maximum: f64,
    /// Percentiles, each from its smallest sample size on.
    pub percentiles: Percentiles,
}

/// Percentiles oriented by badness: the p95 of a rate is a low rate.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// The median.
    pub p50: Option<f64>,
    /// From 10 values on.
    pub p90: Option<f64>,
    /// From 20 values on.
    pub p95: Option<f64>,
    /// From 100 values on.
    pub p99: Option<f64>,
}

impl Percentiles {
    /// A percentile, if the sample is large enough.
    pub fn get(&self, percentile: Percentile) -> Option<f64> {
        match percentile {
            Percentile::P50 => self.p50,
            Percentile::P90 => self.p90,
            Percentile::P95 => self.p95,
            Percentile::P99 => self.p99,
        }
    }
}

/// Describes a sample; `None` if it is empty or has a value that is not a finite number.
pub fn summarise(values: &[f64], direction: Direction) -> Option<Summary> {
    let ordered = Ordered::new(values, direction)?;
    let [p50, p90, p95, p99] = Percentile::ALL.map(|percentile| ordered.percentile(percentile));
    let mean = mean(values);
    let smallest_first = |a: f64, b: f64| if a < b { (a, b) } else { (b, a) };
    let (minimum, maximum) = smallest_first(ordered.values()[0], ordered.values()[values.len() - 1]);
    Some(Summary {
        count: values.len(),
        mean,
        standard_deviation: standard_deviation(values, mean),
        minimum,
        maximum,
        percentiles: Percentiles { p50, p90, p95, p99 },
    })
}

pub(super) fn mean(values: &[f64]) -> f64 {
    // Distances from a value of the sample lose fewer digits than the values, such as bytes of memory.
    let first = values[0];
    first + values.iter().map(|value| value - first).sum::<f64>() / values.len() as f64
}

pub(super) fn standard_deviation(values: &[f64], mean: f64) -> Option<f64> {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use statrs::statistics::Statistics;

    #[test]
    fn a_known_sample() {
        let summary = summarise(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], Direction::LowerIsBetter).unwrap();
        assert_eq!((summary.count, summary.mean, summary.minimum, summary.maximum), (8, 5.0, 2.0, 9.0));
        assert!((summary.standard_deviation.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((summary.percentiles.p50.unwrap() - 20f64.sqrt()).abs() < 1e-12);
        assert_eq!(summary.percentiles.p90, None);
    }

    #[test]
    fn one_value_has_no_deviation() {
        let summary = summarise(&[3.0], Direction::HigherIsBetter).unwrap();
        assert_eq!((summary.mean, summary.standard_deviation), (3.0, None));
        assert_eq!(summarise(&[], Direction::HigherIsBetter), None);
    }

    #[test]
    fn equal_values_keep_their_mean() {
        assert_eq!(summarise(&[0.1; 10], Direction::LowerIsBetter).unwrap().mean, 0.1);
    }

    proptest! {
        #[test]
        fn agrees_with_statrs(values in prop::collection::vec(1e-3f64..1e6, 2..80)) {
            let summary = summarise(&values, Direction::LowerIsBetter).unwrap();
            prop_assert!((summary.mean - values.as_slice().mean()).abs() <= 1e-9 * summary.mean);
            let reference = values.as_slice().std_dev();
            prop_assert!((summary.standard_deviation.unwrap() - reference).abs() <= 1e-6 * reference.max(1e-3));
        }
    }
}
