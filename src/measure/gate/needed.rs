//! How many more launches would likely settle what is inconclusive: bisection over their number, with the estimate and
//! the variance of the launches that were made.

use super::decide::Thresholds;
use super::verdict::Status;
use crate::stats::Shift;

/// More than this is nothing to ask for.
const MOST: usize = 200;

/// Further launches of the candidate after which a shift would pass or fail, in steps of `step`; `grown` gives the
/// launches of both arms after so many. `None` if no number would do.
pub(super) fn more_launches(
    shift: &Shift,
    thresholds: &Thresholds,
    false_alarm: f64,
    step: usize,
    grown: impl Fn(usize) -> [usize; 2],
) -> Option<usize> {
    let settled = |steps: usize| {
        let expected = shift.with_launches(grown(steps * step));
        let significant = expected.lower(false_alarm) > 0.0;
        thresholds.status(&expected, significant) != Status::Inconclusive
    };
    // Bounds only narrow, so that what some launches settle, more of them settle too.
    let (mut too_few, mut enough) = (0, MOST / step);
    if !settled(enough) {
        return None;
    }
    while enough - too_few > 1 {
        let middle = usize::midpoint(too_few, enough);
        if settled(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Some(enough * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ExtraVariance;

    const THRESHOLDS: Thresholds =
        Thresholds { limit: 0.05, excluded: 0.08, passes: 0.05, limit_binds: true };

    fn shift(estimate: f64, deviation: f64) -> Shift {
        Shift {
            estimate,
            origin: 0.0,
            launch_variance: deviation.powi(2),
            launch_degrees: 18.0,
            launches: [10, 10],
            extra_variance: ExtraVariance::default(),
        }
    }

    fn needed(shift: &Shift) -> Option<usize> {
        more_launches(shift, &THRESHOLDS, 0.0004, 2, |more| [10 + more, 10 + more])
    }

    #[test]
    fn noise_asks_for_launches_and_more_noise_for_more() {
        let (some, many) = (needed(&shift(0.02, 0.09)).unwrap(), needed(&shift(0.02, 0.18)).unwrap());
        assert!(some >= 2 && many > 2 * some, "{some} {many}");
        let grown = shift(0.02, 0.09).with_launches([10 + some, 10 + some]);
        assert_eq!(THRESHOLDS.status(&grown, false), Status::Pass);
        assert!(needed(&shift(0.06, 0.05)).is_some(), "a regression becomes significant");
    }

    #[test]
    fn a_charge_that_launches_cannot_lower_gives_no_number() {
        let charged =
            shift(0.03, 0.02).with_extra_variance(ExtraVariance { variance: 0.05f64.powi(2), degrees: None });
        assert_eq!(needed(&charged), None);
    }
}
