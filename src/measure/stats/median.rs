//! The sample median, and the spread around it.

/// The sample median: with the values in order, `x[n/2]` for an odd count, `(x[n/2 - 1] + x[n/2]) / 2` for an even one.
/// `None` if there are no values. Percentiles of reports are of type 7 on logarithms instead: see [`super::Ordered`].
pub fn median(values: &[f64]) -> Option<f64> {
    let mut ordered = values.to_vec();
    ordered.sort_unstable_by(f64::total_cmp);
    (!ordered.is_empty()).then(|| median_of_sorted(&ordered))
}

/// How far values lie from their median, relative to it: the median absolute deviation, scaled so that it is a standard
/// deviation where values are normal. `None` for fewer than two values, or for a median that is not positive.
pub fn spread(values: &[f64]) -> Option<f64> {
    let centre = median(values).filter(|centre| *centre > 0.0 && values.len() > 1)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    Some(median(&distances)? * 1.4826 / centre)
}

/// The median of values in ascending order, of which there is at least one.
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
