//! The least of numbers that are judged. `f64::min` passes over NaN, and with it what is wrong would pass a check.

/// The least of some numbers: NaN if one of them is, nothing if there is none.
pub fn least(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().reduce(|a, b| if a.is_nan() || a < b { a } else { b })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_stays_wherever_it_is() {
        assert_eq!(least([0.5, 0.25, 1.0]), Some(0.25));
        assert_eq!(least([]), None);
        for at in 0..3 {
            let mut numbers = [1.0, 0.5, 0.75];
            numbers[at] = f64::NAN;
            assert!(least(numbers).unwrap().is_nan());
        }
    }
}
