//! How far logits are from a reference: of one position, and of many together. All sums are in f64.

use serde::Serialize;

use anemeter_measure::stats::{cosine, kl_divergence};

/// How many of the likeliest tokens are compared as a set.
const TOP: usize = 5;

/// Logits of one position against the reference's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Cosine of the angle between both.
    pub cosine: f64,
    /// KL divergence of the reference's distribution from the other, in nats.
    pub kl: f64,
    /// Whether the likeliest token is the same.
    pub top1: bool,
    /// Share of the reference's five likeliest tokens that are among the other's.
    pub top5: f64,
    /// Largest difference of a logit.
    pub max_abs: f64,
    /// The same as a share of the reference's largest magnitude.
    pub max_rel: f64,
}

/// Numbers that are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NonFinite {
    /// Not a number.
    pub nan: usize,
    /// Infinities.
    pub inf: usize,
}

impl NonFinite {
    /// Counts them.
    pub fn of(logits: &[f32]) -> NonFinite {
        NonFinite {
            nan: logits.iter().filter(|x| x.is_nan()).count(),
            inf: logits.iter().filter(|x| x.is_infinite()).count(),
        }
    }

    /// Whether there are any.
    pub fn any(self) -> bool {
        self.nan + self.inf > 0
    }
}

/// Compares logits of the same length; `None` if any of them is not a finite number.
pub(super) fn compare(reference: &[f32], found: &[f32]) -> Option<Comparison> {
    if reference.len() != found.len() || reference.is_empty() {
        return None;
    }
    if NonFinite::of(reference).any() || NonFinite::of(found).any() {
        return None;
    }
    let pairs = || reference.iter().zip(found).map(|(&r, &f)| (f64::from(r), f64::from(f)));
    let max_abs = pairs().map(|(r, f)| (r - f).abs()).fold(0.0, f64::max);
    let largest = pairs().map(|(r, _)| r.abs()).fold(0.0, f64::max);
    let max_rel = match (max_abs == 0.0, largest == 0.0) {
        (true, _) => 0.0,
        (false, true) => f64::INFINITY,
        (false, false) => max_abs / largest,
    };
    let top = top(reference, TOP);
    let found_top = self::top(found, TOP);
    let shared = top.iter().filter(|id| found_top.contains(id)).count();
    Some(Comparison {
        cosine: cosine(reference, found),
        kl: kl_divergence(reference, found),
        top1: top[0] == found_top[0],
        top5: shared as f64 / top.len() as f64,
        max_abs,
        max_rel,
    })
}

/// The likeliest tokens, likeliest first; of equal ones the lower id first.
pub fn top(logits: &[f32], count: usize) -> Vec<usize> {
    let order = |&a: &usize, &b: &usize| logits[b].total_cmp(&logits[a]).then(a.cmp(&b));
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    let count = count.min(ids.len());
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_by(order);
    ids
}

/// Many comparisons in one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Positions compared, those with NaN or infinity included.
    pub positions: usize,
    /// Smallest cosine; absent if no position was finite.
    pub cosine_min: Option<f64>,
    /// Mean cosine.
    pub cosine_mean: Option<f64>,
    /// Largest KL divergence, in nats.
    pub kl_max: Option<f64>,
    /// Mean KL divergence, in nats.
    pub kl_mean: Option<f64>,
    /// Share of positions with the same likeliest token.
    pub top1: f64,
    /// Mean share of the reference's five likeliest tokens that are among the package's.
    pub top5: f64,
    /// Largest difference of a logit.
    pub max_abs: f64,
    /// Largest difference as a share of the reference's largest magnitude at its position.
    pub max_rel: f64,
    /// Logits that are NaN.
    pub nan: usize,
    /// Logits that are infinite.
    pub inf: usize,
    /// Positions whose reference is not finite, so that there is nothing to compare with.
    pub reference_non_finite: usize,
}

/// Gathers comparisons for a [`Summary`].
#[derive(Debug, Clone, Default)]
pub struct LogitMetrics {
    comparisons: Vec<Comparison>,
    positions: usize,
    lost: NonFinite,
    reference_non_finite: usize,
}

impl LogitMetrics {
    /// Compares one more position.
    pub fn add(&mut self, reference: &[f32], found: &[f32]) {
        self.positions += 1;
        let lost = NonFinite::of(found);
        self.lost = NonFinite { nan: self.lost.nan + lost.nan, inf: self.lost.inf + lost.inf };
        self.reference_non_finite += usize::from(NonFinite::of(reference).any());
        self.comparisons.extend(compare(reference, found));
    }

    /// The comparisons in one line.
    pub fn summary(&self) -> Summary {
        let all = &self.comparisons;
        let finite = (!all.is_empty()).then_some(());
        let mean = |value: fn(&Comparison) -> f64| all.iter().map(value).sum::<f64>() / all.len() as f64;
        let most = |value: fn(&Comparison) -> f64| all.iter().map(value).fold(0.0, f64::max);
        let share =
            |value: fn(&Comparison) -> f64| all.iter().map(value).sum::<f64>() / self.positions.max(1) as f64;
        Summary {
            positions: self.positions,
            cosine_min: finite.map(|()| all.iter().map(|c| c.cosine).fold(1.0, f64::min)),
            cosine_mean: finite.map(|()| mean(|c| c.cosine)),
            kl_max: finite.map(|()| most(|c| c.kl)),
            kl_mean: finite.map(|()| mean(|c| c.kl)),
            top1: share(|c| f64::from(u8::from(c.top1))),
            top5: share(|c| c.top5),
            max_abs: most(|c| c.max_abs),
            max_rel: most(|c| c.max_rel),
            nan: self.lost.nan,
            inf: self.lost.inf,
            reference_non_finite: self.reference_non_finite,
        }
    }

    /// The largest difference of a logit at positions where the likeliest token is the same.
    pub fn error_where_agreed(&self) -> f64 {
        self.comparisons.iter().filter(|c| c.top1).map(|c| c.max_abs).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn values_by_hand() {
        let c = compare(&[3.0, 4.0], &[4.0, 3.0]).unwrap();
        assert!(close(c.cosine, 24.0 / 25.0), "{c:?}");
        assert!(!c.top1);
        assert_eq!((c.top5, c.max_abs, c.max_rel), (1.0, 1.0, 0.25));
        // Shares e/(1+e) and 1/(1+e), swapped; their logarithms differ by one.
        let tilt = (1f64.exp() - 1.0) / (1f64.exp() + 1.0);
        assert!(close(c.kl, tilt), "{} {tilt}", c.kl);

        // Shares 1/2, 1/4, 1/4 against thirds.
        let c = compare(&[2f32.ln(), 0.0, 0.0], &[1.0, 1.0, 1.0]).unwrap();
        let ln2 = f64::from(2f32.ln());
        assert!((c.kl - (3f64.ln() - 1.5 * ln2)).abs() < 1e-7, "{}", c.kl);
        assert!(c.top1, "of equal logits the first counts");
    }

    #[test]
    fn five_likeliest_of_many() {
        let reference = [9.0, 8.0, 7.0, 6.0, 5.0, 0.0, 0.0, 0.0];
        let found = [9.0, 8.0, 7.0, 0.0, 0.0, 5.0, 6.0, 0.0];
        assert_eq!(top(&reference, 5), [0, 1, 2, 3, 4]);
        assert_eq!(top(&found, 5), [0, 1, 2, 6, 5]);
        let c = compare(&reference, &found).unwrap();
        assert_eq!((c.top1, c.top5, c.max_abs), (true, 0.6, 6.0));
    }

    #[test]
    fn edges() {
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, 0.0]), 1.0);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 0.0]), 0.0);
        assert_eq!(compare(&[0.0], &[1.0]).unwrap().max_rel, f64::INFINITY);
        for bad in [f32::NAN, f32::INFINITY] {
            assert_eq!(compare(&[1.0, 2.0], &[1.0, bad]), None);
        }
        assert_eq!(compare(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(compare(&[], &[]), None);
        let huge = compare(&[3e38, -3e38], &[3e38, -3e38]).unwrap();
        assert_eq!((huge.cosine, huge.kl), (1.0, 0.0));
    }

    #[test]
    fn summaries_by_hand() {
        let mut gathered = LogitMetrics::default();
        gathered.add(&[3.0, 4.0], &[4.0, 3.0]);
        gathered.add(&[3.0, 4.0], &[3.0, 4.0]);
        gathered.add(&[3.0, 4.0], &[f32::NAN, f32::NEG_INFINITY]);
        let summary = gathered.summary();
        assert_eq!(summary.positions, 3);
        assert!(close(summary.cosine_min.unwrap(), 0.96) && close(summary.cosine_mean.unwrap(), 0.98));
        assert!(close(summary.kl_max.unwrap(), 2.0 * summary.kl_mean.unwrap()));
        assert!(close(summary.top1, 1.0 / 3.0) && close(summary.top5, 2.0 / 3.0));
        assert_eq!((summary.max_abs, summary.max_rel), (1.0, 0.25));
        assert_eq!((summary.nan, summary.inf, summary.reference_non_finite), (1, 1, 0));
        gathered.add(&[3.0, f32::NAN], &[3.0, 4.0]);
        assert_eq!(gathered.summary().reference_non_finite, 1);
        assert_eq!(gathered.error_where_agreed(), 0.0);
        assert_eq!(LogitMetrics::default().summary().cosine_min, None);
    }

    proptest! {
        #[test]
        fn properties(values in proptest::collection::vec((-50f32..50.0, -50f32..50.0), 1..40), scale in 0.1f32..8.0) {
            let (a, b): (Vec<f32>, Vec<f32>) = values.into_iter().unzip();
            let c = compare(&a, &b).unwrap();
            prop_assert!(c.kl >= 0.0 && (-1.0..=1.0).contains(&c.cosine) && (0.0..=1.0).contains(&c.top5));
            let same = compare(&a, &a).unwrap();
            prop_assert!(same.top1 && same.top5 == 1.0 && same.kl == 0.0 && same.max_abs == 0.0);
            prop_assert!(same.cosine > 1.0 - 1e-12);
            let scaled: Vec<f32> = b.iter().map(|x| x * scale).collect();
            prop_assert!((cosine(&a, &scaled) - c.cosine).abs() < 1e-5);
            let shifted: Vec<f32> = a.iter().map(|x| x + 1.0).collect();
            prop_assert!(compare(&a, &shifted).unwrap().kl < 1e-5, "a shift of all logits changes no probability");
            prop_assert_eq!(top(&a, 1)[0], top(&a, a.len())[0]);
        }
    }
}
