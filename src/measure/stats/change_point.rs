//! Change points of a series: E-divisive means.
//!
//! Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate data" (2014), with the
//! exponent 2, for which the energy distance of two segments is the squared difference of their means: a split of `n`
//! values into `a` and `b` is as good as `a·b/n · (mean of a − mean of b)²`. The best split counts if fewer than the stated
//! share of random orders of the same values have one as good; then both sides are split further. The test is exact for
//! values in any order, whatever their distribution, so the share is the rate of false changes of a flat series.
//!
//! Series of benchmarks were first treated so at MongoDB (Daly et al. 2020), and in Apache Otava, which was Hunter
//! (Fleming et al. 2023).

use fastrand::Rng;

/// Fewest values between two changes.
pub const SHORTEST: usize = 3;
/// Random orders that a split is held against.
const ORDERS: usize = 999;
/// Where the random orders begin, so that the same series has the same changes every time.
const SEED: u64 = 0x00c4_a96e;

/// A place where the mean of a series changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// The first value after it.
    pub index: usize,
    /// Mean from the change before, or the beginning, to this one.
    pub before: f64,
    /// Mean from this one to the next, or the end.
    pub after: f64,
}

/// The changes of a series, first to last. `false_rate` is how often a series without a change has one. Values that are
/// not finite make a series without changes.
pub fn change_points(values: &[f64], false_rate: f64) -> Vec<ChangePoint> {
    if values.iter().any(|value| !value.is_finite()) {
        return Vec::new();
    }
    let mut splits = Vec::new();
    split(values, 0, false_rate, &mut splits);
    splits.sort_unstable();
    let ends: Vec<usize> = [0].into_iter().chain(splits.iter().copied()).chain([values.len()]).collect();
    let mean_of = |from: usize, to: usize| mean(&values[from..to]);
    let around = ends.windows(3).map(|ends| ChangePoint {
        index: ends[1],
        before: mean_of(ends[0], ends[1]),
        after: mean_of(ends[1], ends[2]),
    });
    around.collect()
}

fn split(values: &[f64], offset: usize, false_rate: f64, splits: &mut Vec<usize>) {
    let Some((at, quality)) = best_split(values) else { return };
    if quality <= 0.0 || !is_rare(values, quality, false_rate) {
        return;
    }
    splits.push(offset + at);
    split(&values[..at], offset, false_rate, splits);
    split(&values[at..], offset + at, false_rate, splits);
}

/// The best place to split a segment, and how good it is.
fn best_split(values: &[f64]) -> Option<(usize, f64)> {
    let count = values.len();
    if count < 2 * SHORTEST {
        return None;
    }
    let centre = mean(values);
    let mut sum = values[..SHORTEST - 1].iter().map(|value| value - centre).sum::<f64>();
    let mut best = (0, f64::NEG_INFINITY);
    for at in SHORTEST..=count - SHORTEST {
        sum += values[at - 1] - centre;
        // With the mean taken out, both sums differ in sign only: a·b/n · (s/a + s/b)² = s²·n / (a·b).
        let quality = sum * sum * count as f64 / (at * (count - at)) as f64;
        if quality > best.1 {
            best = (at, quality);
        }
    }
    Some(best)
}

/// Whether random orders of the same values rarely split as well. Ends as soon as that is out of reach (Besag and
/// Clifford 1991), which is soon for a series without a change.
fn is_rare(values: &[f64], quality: f64, false_rate: f64) -> bool {
    let most = ((ORDERS + 1) as f64 * false_rate).floor() as usize;
    let mut random = Rng::with_seed(SEED);
    let mut shuffled = values.to_vec();
    // Sums in another order differ in their last bits.
    let as_good = quality * (1.0 - 1e-9);
    let mut reached = 1;
    for _ in 0..ORDERS {
        if reached > most {
            return false;
        }
        random.shuffle(&mut shuffled);
        let best = best_split(&shuffled).map_or(f64::NEG_INFINITY, |(_, quality)| quality);
        reached += usize::from(best >= as_good);
    }
    reached <= most
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const FALSE_RATE: f64 = 0.01;
    /// Spread of the medians of sessions on the typical machine of `gate-power`, about.
    const NOISE: f64 = 0.015;

    fn normal(random: &mut Rng) -> f64 {
        let (u, v) = (1.0 - random.f64(), random.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn series(random: &mut Rng, steps: &[(usize, f64)]) -> Vec<f64> {
        let level = |at: usize| steps.iter().filter(|step| at >= step.0).map(|step| step.1).product::<f64>();
        (0..60).map(|at| 20.0 * level(at) * (1.0 + NOISE * normal(random))).collect()
    }

    #[test]
    fn a_step_of_five_percent_is_found_where_it_is() {
        let mut random = Rng::with_seed(1);
        let found = (0..500).filter(|_| {
            let at = random.usize(5..=55);
            let changes = change_points(&series(&mut random, &[(at, 1.05)]), FALSE_RATE);
            changes.iter().any(|change| change.index.abs_diff(at) <= 2 && change.after > change.before)
        });
        let found = found.count();
        assert!(found >= 475, "{found} of 500");
    }

    #[test]
    fn flat_series_have_no_change() {
        let mut random = Rng::with_seed(2);
        let changed = (0..500).filter(|_| !change_points(&series(&mut random, &[]), FALSE_RATE).is_empty());
        let changed = changed.count();
        assert!(changed <= 10, "{changed} of 500");
        // Nor has one with heavy tails: a value of 20 now and then is three times as large.
        let stalls = (0..500).filter(|_| {
            let mut values = series(&mut random, &[]);
            values.iter_mut().for_each(|value| *value *= if random.u8(..20) == 0 { 3.0 } else { 1.0 });
            !change_points(&values, FALSE_RATE).is_empty()
        });
        let stalls = stalls.count();
        assert!(stalls <= 10, "{stalls} of 500");
    }

    #[test]
    fn several_changes_are_told_with_their_levels() {
        let mut values = vec![10.0; 20];
        values.extend([12.0; 15]);
        values.extend([9.0; 10]);
        let expected = [
            ChangePoint { index: 20, before: 10.0, after: 12.0 },
            ChangePoint { index: 35, before: 12.0, after: 9.0 },
        ];
        assert_eq!(change_points(&values, FALSE_RATE), expected);
    }

    #[test]
    fn series_that_say_nothing_have_no_change() {
        for values in [&[][..], &[1.0], &[1.0, 9.0, 1.0, 9.0], &[5.0; 40], &[f64::NAN; 12], &[1e308; 12]] {
            assert_eq!(change_points(values, FALSE_RATE), [], "{values:?}");
        }
    }
}
