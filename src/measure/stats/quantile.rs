//! Percentiles of type 7, oriented by badness.
//!
//! With values `x[0..n]`, the best first, the quantile of a share `p` is at the rank `h = (n - 1) p`, between `x[floor h]`
//! and `x[floor h + 1]`, interpolated on logarithms. The p95 of a rate is thus a low rate. R. J. Hyndman and Y. Fan,
//! "Sample quantiles in statistical packages", The American Statistician 50 (1996), definition 7.

use super::Direction;

/// A percentile that reports show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Percentile {
    /// The median.
    P50,
    /// A tenth is slower.
    P90,
    /// A twentieth is slower.
    P95,
    /// A hundredth is slower.
    P99,
}

impl Percentile {
    /// All of them.
    pub const ALL: [Percentile; 4] = [Percentile::P50, Percentile::P90, Percentile::P95, Percentile::P99];

    /// The part of the sample that is no worse.
    pub fn share(self) -> f64 {
        match self {
            Percentile::P50 => 0.50,
            Percentile::P90 => 0.90,
            Percentile::P95 => 0.95,
            Percentile::P99 => 0.99,
        }
    }

    /// With fewer samples than this it says nothing and is not shown.
    pub fn minimum_samples(self) -> usize {
        match self {
            // From p90 on `1 / (1 - share)`: one sample is expected beyond the percentile.
            Percentile::P50 => 1,
            Percentile::P90 => 10,
            Percentile::P95 => 20,
            Percentile::P99 => 100,
        }
    }
}

/// A sample in order, the best value first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ordered {
    values: Vec<f64>,
}

impl Ordered {
    /// Puts a sample in order; `None` if it is empty or has a value that is not a finite number.
    pub fn new(values: &[f64], direction: Direction) -> Option<Ordered> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        if direction == Direction::HigherIsBetter {
            values.reverse();
        }
        Some(Ordered { values })
    }

    /// The values, the best first.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// A percentile if the sample is large enough for it.
    pub fn percentile(&self, percentile: Percentile) -> Option<f64> {
        (self.values.len() >= percentile.minimum_samples()).then(|| self.quantile(percentile.share()))
    }

    /// The value that a part `share` of the sample is no worse than, whatever the sample's size. Between two
    /// values it is interpolated on logarithms, or plainly where one of them is not positive.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (self.values.len() - 1) as f64 * share.clamp(0.0, 1.0);
        let below = rank.floor() as usize;
        let fraction = rank - rank.floor();
        let best = self.values[below];
        match self.values.get(below + 1) {
            Some(&worse) if fraction > 0.0 => between(best, worse, fraction),
            _ => best,
        }
    }
}

fn between(a: f64, b: f64, fraction: f64) -> f64 {
    if a > 0.0 && b > 0.0 && a != b {
        // On logarithms the percentile of a rate is the inverse of that of its time.
        (a.ln() * (1.0 - fraction) + b.ln() * fraction).exp()
    } else {
        a + (b - a) * fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ordered(values: &[f64], direction: Direction) -> Ordered {
        Ordered::new(values, direction).unwrap()
    }

    #[test]
    fn values_of_the_sample_come_back_exactly() {
        let sample = ordered(&[30.0, 10.0, 20.0], Direction::LowerIsBetter);
        assert_eq!([0.0, 0.5, 1.0].map(|share| sample.quantile(share)), [10.0, 20.0, 30.0]);
        assert_eq!(ordered(&[7.0], Direction::LowerIsBetter).quantile(0.95), 7.0);
    }

    #[test]
    fn between_values_logarithms_are_interpolated() {
        let sample = ordered(&[1.0, 4.0], Direction::LowerIsBetter);
        assert!((sample.quantile(0.5) - 2.0).abs() < 1e-12);
        assert_eq!(ordered(&[0.0, 4.0], Direction::LowerIsBetter).quantile(0.5), 2.0);
    }

    #[test]
    fn the_tail_of_a_rate_is_slow() {
        let rates: Vec<f64> = (1..=21).map(f64::from).collect();
        let sample = ordered(&rates, Direction::HigherIsBetter);
        assert_eq!(sample.percentile(Percentile::P50), Some(11.0));
        assert_eq!(sample.percentile(Percentile::P95), Some(2.0));
        assert_eq!(ordered(&rates, Direction::LowerIsBetter).percentile(Percentile::P95), Some(20.0));
    }

    #[test]
    fn small_samples_have_no_tail() {
        for percentile in Percentile::ALL {
            let enough = percentile.minimum_samples();
            let with = |n: usize| ordered(&vec![1.0; n], Direction::LowerIsBetter).percentile(percentile);
            assert_eq!(with(enough), Some(1.0));
            assert_eq!(if enough > 1 { with(enough - 1) } else { None }, None);
        }
    }

    #[test]
    fn what_is_not_a_sample_has_no_percentile() {
        for values in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY]] {
            assert_eq!(Ordered::new(values, Direction::LowerIsBetter), None);
        }
    }

    proptest! {
        #[test]
        fn quantiles_lie_inside_and_get_worse(values in prop::collection::vec(-1e6f64..1e6, 1..60), a in 0.0..1.0, b in 0.0..1.0) {
            let sample = ordered(&values, Direction::LowerIsBetter);
            let (low, high) = (sample.quantile(f64::min(a, b)), sample.quantile(f64::max(a, b)));
            let slack = 1e-9 * high.abs().max(1.0);
            prop_assert!(low <= high + slack);
            prop_assert!(low >= sample.values()[0] - slack && high <= sample.values()[values.len() - 1] + slack);
        }

        #[test]
        fn times_and_their_rates_have_the_same_percentiles(times in prop::collection::vec(0.01f64..1e4, 20..60)) {
            let rates: Vec<f64> = times.iter().map(|t| 1000.0 / t).collect();
            let slow = ordered(&times, Direction::LowerIsBetter).percentile(Percentile::P95).unwrap();
            let rate = ordered(&rates, Direction::HigherIsBetter).percentile(Percentile::P95).unwrap();
            prop_assert!((rate * slow / 1000.0 - 1.0).abs() < 1e-9);
        }
    }
}
