//! One figure for a mix of kinds of requests: `sum w t / sum w` for times, `sum w / sum (w / r)` for rates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Direction;

/// A figure weighted by how often each kind of request occurs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mix {
    /// The weighted figure.
    pub value: f64,
    /// The part of the mix that was measured; the weights are scaled to it.
    pub covered: f64,
}

/// Weighs (weight, value) pairs; `None` stands for a kind that was not measured. Times are averaged
/// arithmetically and rates harmonically, so that both are the mean time of a request of the mix.
pub fn mix(parts: &[(f64, Option<f64>)], direction: Direction) -> Option<Mix> {
    let total: f64 = parts.iter().map(|(weight, _)| weight).sum();
    let measured: Vec<(f64, f64)> =
        parts.iter().filter_map(|(weight, value)| value.map(|value| (*weight, value))).collect();
    let covered: f64 = measured.iter().map(|(weight, _)| weight).sum();
    if covered <= 0.0 || measured.iter().any(|&(weight, value)| weight < 0.0 || value <= 0.0) {
        return None;
    }
    let value = match direction {
        Direction::LowerIsBetter => measured.iter().map(|(w, v)| w * v).sum::<f64>() / covered,
        Direction::HigherIsBetter => covered / measured.iter().map(|(w, v)| w / v).sum::<f64>(),
    };
    value.is_finite().then_some(Mix { value, covered: covered / total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates() {
        let times = [(0.4, Some(100.0)), (0.6, Some(200.0))];
        assert_eq!(mix(&times, Direction::LowerIsBetter), Some(Mix { value: 160.0, covered: 1.0 }));
        let rates = [(0.5, Some(10.0)), (0.5, Some(30.0))];
        assert!((mix(&rates, Direction::HigherIsBetter).unwrap().value - 15.0).abs() < 1e-12);
    }

    #[test]
    fn what_was_not_measured_is_left_out_and_said() {
        let figure =
            mix(&[(0.4, Some(10.0)), (0.4, Some(20.0)), (0.2, None)], Direction::LowerIsBetter).unwrap();
        assert!((figure.value - 15.0).abs() < 1e-12);
        assert!((figure.covered - 0.8).abs() < 1e-12);
        assert_eq!(mix(&[(1.0, None)], Direction::LowerIsBetter), None);
        assert_eq!(mix(&[], Direction::LowerIsBetter), None);
    }
}
