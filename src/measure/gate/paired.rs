//! Rule P: two packages interleaved in one session, in an order that was drawn (a randomised block design: blocks of four
//! launches, two of each arm). What differs between sessions cancels, and the order itself gives the probabilities: a
//! permutation test, see `stats/randomise.rs`.

use schemars::JsonSchema;
use serde::Serialize;

use super::comparable::GateError;
use super::decide::{JudgedSeries, Obstacle, Thresholds, check, inconclusive};
use super::policy::Policy;
use super::rates::{Family, InterimLook};
use super::series::{self, Series, completed};
use super::stored::{too_few, too_few_samples};
use super::verdict::{Check, Status};
use crate::report::{Outcome, Report};
use crate::stats::{BLOCK, Orders, Shift, family_probabilities};

/// One of the two packages of a paired comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// The one that is compared with.
    Baseline,
    /// The one that is judged.
    Candidate,
}

/// Draws an order of launches: blocks of four, two of each arm, each block in an order of its own.
pub fn draw_order(blocks: usize, seed: u64) -> Vec<Arm> {
    // Permuted blocks, not a fixed ABBA: machines oscillate with periods of a few launches.
    let mut random = fastrand::Rng::with_seed(seed);
    let draw = |_| {
        let mut block: Vec<Arm> =
            (0..BLOCK).map(|place| if place < BLOCK / 2 { Arm::Baseline } else { Arm::Candidate }).collect();
        random.shuffle(&mut block);
        block
    };
    (0..blocks).flat_map(draw).collect()
}

/// Launches in the order in which they ran.
struct Running {
    orders: Orders,
    /// The arm of each launch that gave values.
    present: Vec<Arm>,
}

impl Running {
    fn new(baseline: &Report, candidate: &Report, order: &[Arm]) -> Result<Running, GateError> {
        let mut arms = [baseline.launches.iter(), candidate.launches.iter()];
        let mut launches = Vec::new();
        for arm in order {
            let Some(launch) = arms[usize::from(*arm == Arm::Candidate)].next() else { break };
            launches.push(launch.outcome == Outcome::Completed);
        }
        if launches.len() != order.len() || arms.iter_mut().any(|arm| arm.next().is_some()) {
            let (places, first, second) = (order.len(), baseline.launches.len(), candidate.launches.len());
            return Err(GateError::Order(format!(
                "has {places} places, but there are {first} and {second} launches"
            )));
        }
        let second: Vec<bool> = order.iter().map(|arm| *arm == Arm::Candidate).collect();
        let orders = Orders::of_blocks(&second, &launches).ok_or_else(|| {
            GateError::Order("is not one of at most 32 blocks of four with two of each".to_owned())
        })?;
        let present = order.iter().zip(&launches).filter(|(_, there)| **there).map(|(arm, _)| *arm).collect();
        Ok(Running { orders, present })
    }

    /// Values of both arms in running order.
    fn interleaved(&self, series: &Series) -> Vec<f64> {
        let (mut baseline, mut candidate) = (series.baseline.iter(), series.candidate.iter());
        let next = |arm: &Arm| match arm {
            Arm::Baseline => baseline.next().copied(),
            Arm::Candidate => candidate.next().copied(),
        };
        self.present.iter().filter_map(next).collect()
    }

    /// Probabilities of the members of a family, if any of them is slower than allowed.
    fn p_values(&self, members: &[(&Series, Shift)], policy: &Policy, look: InterimLook) -> Option<Vec<f64>> {
        // Thousands of orders are evaluated for a probability, which matters only where something may fail.
        let beyond =
            |(series, shift): &(&Series, Shift)| shift.estimate > Thresholds::new(series, policy, look).limit;
        if !look.can_fail() || !members.iter().any(beyond) {
            return None;
        }
        let values: Vec<Vec<f64>> = members.iter().map(|(series, _)| self.interleaved(series)).collect();
        family_probabilities(&values, &self.orders)
    }
}

/// Checks of everything that is compared launch by launch.
pub(super) fn checks(
    baseline: &Report,
    candidate: &Report,
    order: &[Arm],
    policy: &Policy,
    look: InterimLook,
) -> Result<Vec<Check>, GateError> {
    let running = Running::new(baseline, candidate, order)?;
    let (first, second) = (completed(baseline), completed(candidate));
    let (series, absent) = series::all(&first, &second, &candidate.workload.places());
    let too_few = too_few(first.len(), second.len(), policy);
    let mut checks = Vec::new();
    for family in Family::ALL {
        let members: Vec<(&Series, Shift)> = series
            .iter()
            .filter(|s| Family::of(s.measure, s.statistic) == family)
            .filter_map(|s| Some((s, Shift::between(&s.baseline, &s.candidate)?)))
            .collect();
        let p_values = running.p_values(&members, policy, look);
        for (index, (one, shift)) in members.iter().enumerate() {
            checks.push(match too_few.clone().or_else(|| too_few_samples(one, policy)) {
                Some(obstacle) => inconclusive(one, Some(shift), policy, look, &obstacle),
                None => {
                    let probability = p_values.as_ref().map(|all| all[index]);
                    judged(one, *shift, (probability, members.len()), policy, look)
                }
            });
        }
    }
    let unlocated = series.iter().filter(|s| Shift::between(&s.baseline, &s.candidate).is_none());
    let obstacle = Obstacle::too_few_launches();
    checks.extend(unlocated.map(|one| inconclusive(one, None, policy, look, &obstacle)));
    checks.extend(
        absent.into_iter().map(|absent| Check::exact(absent.measure, Status::NotGated, absent.reason)),
    );
    Ok(checks)
}

fn judged(
    one: &Series,
    shift: Shift,
    (probability, members): (Option<f64>, usize),
    policy: &Policy,
    look: InterimLook,
) -> Check {
    let false_alarm = look.false_alarm(Family::of(one.measure, one.statistic));
    let judged = JudgedSeries {
        series: one,
        shift,
        significant: look.can_fail() && probability.is_some_and(|p| p <= false_alarm),
        probability,
        // maxT has corrected the probability. The forecast of launches uses Bonferroni instead, which asks for too
        // many rather than too few.
        false_alarm: false_alarm / members as f64,
        step: BLOCK / 2,
        both_grow: true,
    };
    check(&judged, policy, look)
}
