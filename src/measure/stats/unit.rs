//! What a number counts, and which way is better.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Unit {
    /// Thousandths of a second.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Tokens per second.
    #[serde(rename = "tok/s")]
    TokensPerSecond,
    /// Predictions per second.
    #[serde(rename = "pred/s")]
    PredictionsPerSecond,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// Thousand million bytes per second.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    /// Joules.
    #[serde(rename = "J")]
    Joules,
    /// A part of one.
    #[serde(rename = "share")]
    Share,
}

impl Unit {
    /// Its symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::TokensPerSecond => "tok/s",
            Unit::PredictionsPerSecond => "pred/s",
            Unit::Bytes => "B",
            Unit::GigabytesPerSecond => "GB/s",
            Unit::Joules => "J",
            Unit::Share => "share",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.symbol())
    }
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Small numbers are good, as with times.
    LowerIsBetter,
    /// Large numbers are good, as with rates.
    HigherIsBetter,
}

impl Direction {
    /// A positive value as a logarithm that grows as things get worse.
    pub fn slow_log(self, value: f64) -> f64 {
        match self {
            Direction::LowerIsBetter => value.ln(),
            Direction::HigherIsBetter => -value.ln(),
        }
    }

    /// The value whose [`slow_log`](Self::slow_log) is given.
    pub fn from_slow_log(self, log: f64) -> f64 {
        match self {
            Direction::LowerIsBetter => log.exp(),
            Direction::HigherIsBetter => (-log).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_what_reports_say() {
        for unit in [
            Unit::Milliseconds,
            Unit::TokensPerSecond,
            Unit::PredictionsPerSecond,
            Unit::Bytes,
            Unit::GigabytesPerSecond,
            Unit::Joules,
            Unit::Share,
        ] {
            assert_eq!(serde_json::to_value(unit).unwrap(), unit.symbol());
        }
    }

    #[test]
    fn slow_logs_grow_as_things_get_worse() {
        assert!(Direction::LowerIsBetter.slow_log(2.0) > Direction::LowerIsBetter.slow_log(1.0));
        assert!(Direction::HigherIsBetter.slow_log(2.0) < Direction::HigherIsBetter.slow_log(1.0));
        for direction in [Direction::LowerIsBetter, Direction::HigherIsBetter] {
            assert!((direction.from_slow_log(direction.slow_log(12.5)) - 12.5).abs() < 1e-12);
        }
    }
}
