//! The sample median.

/// The sample median: with the values in order, `x[n/2]` for an odd count, `(x[n/2 - 1] + x[n/2]) / 2` for an even one.
/// `None` if there are no values. Percentiles of reports are of type 7 on logarithms instead: see [`super::Ordered`].
pub fn median(values: &[f64]) -> Option<f64> {
    let mut ordered = values.to_vec();
    ordered.sort_unstable_by(f64::total_cmp);
    (!ordered.is_empty()).then(|| median_of_sorted(&ordered))
}

/// The same for values in ascending order, of which there is at least one.
pub(super) fn median_of_sorted(ordered: &[f64]) -> f64 {
    let middle = ordered.len() / 2;
    match ordered.len() % 2 {
        1 => ordered[middle],
        _ => f64::midpoint(ordered[middle - 1], ordered[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_count_is_between_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
