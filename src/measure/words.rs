//! Changes and limits in the words that people read.

/// Words for what is worse and for what is better.
pub(crate) type Words = [&'static str; 2];

/// What takes time.
pub(crate) const SPEED: Words = ["slower", "faster"];
/// What takes up room.
pub(crate) const SIZE: Words = ["larger", "smaller"];

/// A change in per cent, positive if it is for the worse, such as `79.8 % faster`.
pub(crate) fn change(worse_pct: f64, [worse, better]: Words) -> String {
    match format!("{:.1}", worse_pct.abs()).as_str() {
        "0.0" => "no change".to_owned(),
        size if worse_pct > 0.0 => format!("{size} % {worse}"),
        size => format!("{size} % {better}"),
    }
}

/// A range of changes, such as `1.2 % faster … 3.0 % slower`. A word that both ends share is said once.
pub(crate) fn range(low: f64, high: f64, words: Words) -> String {
    let (low, high) = (change(low, words), change(high, words));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, a)), Some((_, b))) if a == b && a.starts_with('%') => format!("{number} … {high}"),
        _ => format!("{low} … {high}"),
    }
}

/// A number as it was configured: a product of two has no digits that neither had.
pub(crate) fn configured(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_says_which_way_it_goes() {
        assert_eq!(change(8.14, SPEED), "8.1 % slower");
        assert_eq!(change(-79.8, SPEED), "79.8 % faster");
        assert_eq!(change(-0.01, SIZE), "no change");
    }

    #[test]
    fn a_range_says_a_common_word_once() {
        assert_eq!(range(6.1, 10.1, SPEED), "6.1 … 10.1 % slower");
        assert_eq!(range(-3.2, 0.8, SIZE), "3.2 % smaller … 0.8 % larger");
        assert_eq!(range(0.0, 0.0, SIZE), "no change … no change");
    }

    #[test]
    fn products_have_no_digits_that_their_factors_lack() {
        for (value, text) in [(7.0 * 1.6, "11.2"), (5.0, "5"), (0.999, "0.999"), (1e-4, "0.0001"), (0.0, "0")]
        {
            assert_eq!(configured(value), text);
        }
    }
}
