//! Numbers with units, for people.

use crate::stats::{Interval, Unit};

/// What is shown where there is no number.
pub(super) const ABSENT: &str = "–";

/// A number with three significant digits and its unit.
pub fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Milliseconds => time(value),
        Unit::Bytes => bytes(value),
        Unit::Share => format!("{} %", digits(value * 100.0)),
        Unit::TokensPerSecond | Unit::PredictionsPerSecond | Unit::GigabytesPerSecond | Unit::Joules => {
            format!("{} {unit}", digits(value))
        }
    }
}

/// The same, or a dash.
pub fn maybe(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| figure(value, unit))
}

/// The ends of an interval.
pub(super) fn range(interval: Option<&Interval>, unit: Unit) -> String {
    match interval {
        None => ABSENT.to_owned(),
        Some(interval) => {
            let (low, high) = (figure(interval.low, unit), figure(interval.high, unit));
            // One unit is enough if both have the same.
            match (low.split_once(' '), high.split_once(' ')) {
                (Some((number, a)), Some((_, b))) if a == b => format!("{number} – {high}"),
                _ => format!("{low} – {high}"),
            }
        }
    }
}

fn time(ms: f64) -> String {
    match ms.abs() {
        size if size >= 10_000.0 => format!("{} s", digits(ms / 1e3)),
        size if size >= 0.1 || size == 0.0 => format!("{} ms", digits(ms)),
        size if size >= 1e-4 => format!("{} µs", digits(ms * 1e3)),
        _ => format!("{} ns", digits(ms * 1e6)),
    }
}

fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled.abs() >= 999.5 && unit + 1 < units.len() {
        scaled /= 1e3;
        unit += 1;
    }
    format!("{} {}", digits(scaled), units[unit])
}

/// Three significant digits, without an exponent.
pub(super) fn digits(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    let decimals = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        size if size >= 0.09995 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_fitting_unit() {
        let cases = [
            (412.345, Unit::Milliseconds, "412 ms"),
            (8.3456, Unit::Milliseconds, "8.35 ms"),
            (0.0123, Unit::Milliseconds, "12.3 µs"),
            (0.000_042, Unit::Milliseconds, "42.0 ns"),
            (12_345.0, Unit::Milliseconds, "12.3 s"),
            (0.0, Unit::Milliseconds, "0 ms"),
            (53.21, Unit::TokensPerSecond, "53.2 tok/s"),
            (999.6, Unit::Bytes, "1.00 kB"),
            (310_000_000.0, Unit::Bytes, "310 MB"),
            (0.4035, Unit::Share, "40.4 %"),
            (f64::NAN, Unit::Joules, "– J"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(figure(value, unit), expected);
        }
    }

    #[test]
    fn ranges_say_a_common_unit_once() {
        let range = |low, high| range(Some(&Interval { low, high, confidence: 0.95 }), Unit::Milliseconds);
        assert_eq!(range(8.0, 9.5), "8.00 – 9.50 ms");
        assert_eq!(range(0.05, 9.5), "50.0 µs – 9.50 ms");
        assert_eq!(super::range(None, Unit::Bytes), "–");
    }
}
