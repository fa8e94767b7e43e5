//! Error rates of speed checks, and how they are spread over looks at a growing number of launches (alpha spending).
//!
//! All checks of a report together raise a false alarm with probability `0.003 + 0.0018 + 0.0002 = 0.005`: medians, tails,
//! and what there is once per launch. Looks of a group-sequential test share that budget: look k spends
//! `0.7 * 0.3^k` of it, the last look all that is left, so that the sum over looks is 1 (a union bound; no correlation
//! between looks is assumed). The early look spends nothing: it can pass and cannot fail. K. K. G. Lan and D. L. DeMets,
//! "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983).

use super::verdict::{Measure, Statistic};

/// How often any median fails though nothing has changed.
const MEDIANS: f64 = 0.003;
/// How often any tail fails though nothing has changed.
const TAILS: f64 = 0.001_8;
/// How often load time or memory fails though nothing has changed.
const OF_LAUNCHES: f64 = 0.000_2;
/// How often a regression that has to be excluded passes: at a full look, and at an early one, which is one more chance
/// to pass and therefore stricter.
const PASSES: f64 = 0.05;
const PASSES_EARLY: f64 = 0.005;
/// What a look spends of what is left, if another may follow.
const SPENT_PER_LOOK: f64 = 0.7;

/// Launches of each arm at the looks of a paired comparison.
const EARLY: usize = 6;
const FULL: usize = 10;

/// A group of checks whose false alarms are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Medians,
    Tails,
    OfLaunches,
}

impl Family {
    pub(super) const ALL: [Family; 3] = [Family::Medians, Family::Tails, Family::OfLaunches];

    pub(super) fn of(measure: Measure, statistic: Statistic) -> Family {
        match (measure, statistic) {
            // One value per launch: these have medians over launches, but no distribution within one.
            (Measure::Load | Measure::MemoryPeak, _) => Family::OfLaunches,
            (_, Statistic::P50) => Family::Medians,
            _ => Family::Tails,
        }
    }

    fn false_alarm(self) -> f64 {
        match self {
            Family::Medians => MEDIANS,
            Family::Tails => TAILS,
            Family::OfLaunches => OF_LAUNCHES,
        }
    }
}

/// One of several times at which launches are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InterimLook {
    /// The part of the allowed false alarms that this look may spend; nothing can fail if it is 0.
    share: f64,
    /// How often a regression that has to be excluded passes.
    passes: f64,
}

impl InterimLook {
    /// The only look, which spends all of the false alarms.
    pub fn only() -> InterimLook {
        InterimLook { share: 1.0, passes: PASSES }
    }

    /// A first look that can only pass.
    pub fn early() -> InterimLook {
        InterimLook { share: 0.0, passes: PASSES_EARLY }
    }

    /// A look that others came before; `last` if none may follow. The first spends 70 % of the false alarms that are
    /// allowed, each later one 70 % of what is left, the last all of it.
    pub fn after(earlier: usize, last: bool) -> InterimLook {
        // 0.3^100 is 0 for any purpose; the bound keeps the exponent an i32.
        let left = (1.0 - SPENT_PER_LOOK).powi(earlier.min(100) as i32);
        InterimLook { share: if last { left } else { left * SPENT_PER_LOOK }, passes: PASSES }
    }

    /// Whether something can fail at this look.
    pub(super) fn can_fail(&self) -> bool {
        self.share > 0.0
    }

    /// How often any check of a family may fail at this look though nothing has changed.
    pub(super) fn false_alarm(&self, family: Family) -> f64 {
        self.share * family.false_alarm()
    }

    /// The same for all families together.
    pub(super) fn false_alarms(&self) -> f64 {
        Family::ALL.iter().map(|family| self.false_alarm(*family)).sum()
    }

    /// How often a regression that has to be excluded passes.
    pub(super) fn passes(&self) -> f64 {
        self.passes
    }
}

/// The looks of a paired comparison: how many launches of each arm, and what may come of them. `extra_blocks` more
/// blocks of launches may be taken while it is inconclusive.
pub fn paired_looks(extra_blocks: usize) -> Vec<(usize, InterimLook)> {
    let full = (0..=extra_blocks).map(|extra| {
        let launches = FULL + extra * crate::stats::BLOCK / 2;
        (launches, InterimLook::after(extra, extra == extra_blocks))
    });
    std::iter::once((EARLY, InterimLook::early())).chain(full).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_together_spend_what_one_may() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        for extra in 0..5 {
            let spent: f64 = paired_looks(extra).iter().map(|(_, look)| look.share).sum();
            assert!(near(spent, 1.0), "{extra}: {spent}");
        }
        let looks = paired_looks(1);
        assert_eq!(looks.iter().map(|(launches, _)| *launches).collect::<Vec<_>>(), [6, 10, 12]);
        assert!(near(looks[1].1.share, 0.7) && near(looks[2].1.share, 0.3));
        assert!(!looks[0].1.can_fail() && looks[1].1.can_fail());
        assert!(near(InterimLook::only().false_alarm(Family::Medians), 0.003));
    }
}
