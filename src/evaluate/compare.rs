//! Two bundles in one session, their launches interleaved in an order that is drawn, until the verdict is settled.

pub mod document;
pub mod runtimes;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::{EvaluateError, Known, Session, Wishes};
use crate::bundle::Bundle;
use crate::gate::{self, Arm, Date, GateError, GatesFile, Look, Options, Outcome, Policy, Status, Verdict};
use crate::generate::SystemClock;
use crate::hardware::System;
use crate::harness::{Event, Launcher, Observations, Plan, Surroundings};
use crate::report::Report;
use crate::runtime;
use crate::stats::BLOCK;

/// Blocks of launches after the full look, at most: later looks have next to no false alarms left to spend.
const EXTRA_BLOCKS: usize = 5;

/// When launches are looked at, and what may come of each look; all of them together spend the false alarms of one.
pub fn looks() -> Vec<(usize, Look)> {
    gate::paired_looks(EXTRA_BLOCKS)
}

/// How long to go on, and what is allowed.
pub struct Terms<'a> {
    /// Limits and waivers.
    pub gates: &'a GatesFile,
    /// The day, for waivers.
    pub today: Date,
    /// No block of launches begins after this time.
    pub budget: Duration,
}

/// What a paired comparison gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Paired {
    /// Seed of the order.
    pub seed: u64,
    /// The launches in the order in which they ran.
    pub order: Vec<Arm>,
    /// Every look at the launches.
    pub looks: Vec<Taken>,
    /// What was compared with.
    pub baseline: Report,
    /// What was judged.
    pub candidate: Report,
    /// Whether the candidate is slower.
    pub verdict: Verdict,
}

/// A look that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// Launches of each bundle.
    pub launches: usize,
    /// What was seen.
    pub outcome: Outcome,
}

/// Why two bundles were not compared.
#[derive(Debug)]
pub enum CompareError {
    /// A bundle cannot be measured as wished.
    Evaluate {
        /// The bundle.
        bundle: String,
        /// Why.
        error: EvaluateError,
    },
    /// The two cannot be measured alike, or what was measured cannot be judged.
    Gate(GateError),
}

impl From<GateError> for CompareError {
    fn from(error: GateError) -> CompareError {
        CompareError::Gate(error)
    }
}

/// Measures two bundles, the baseline first, in workers that `launcher` starts, and judges the second.
pub fn compare(
    bundles: [&Bundle; 2],
    wishes: &Wishes<'_>,
    terms: &Terms<'_>,
    launcher: &mut dyn Launcher,
    tell: &mut dyn FnMut(Event),
) -> Result<Paired, CompareError> {
    let clock = SystemClock::default();
    let rest = &mut |time: Duration| std::thread::sleep(time);
    let mut around = Surroundings { launcher, clock: &clock, source: &System, rest };
    compare_in(bundles, wishes, terms, &mut around, tell)
}

fn compare_in(
    [baseline, candidate]: [&Bundle; 2],
    wishes: &Wishes<'_>,
    terms: &Terms<'_>,
    around: &mut Surroundings<'_>,
    tell: &mut dyn FnMut(Event),
) -> Result<Paired, CompareError> {
    let session = Session::new(wishes.profiles, around.source);
    let policy = Policy::new(&session.profile.profile, terms.gates);
    let sides = [Side::new(baseline, wishes, &session)?, Side::new(candidate, wishes, &session)?];
    let mut contest = Contest { session: &session, sides, policy, today: terms.today };
    contest.check_alike()?;
    contest.run(wishes.config.seed, terms.budget, around, tell)
}

/// One of the two bundles and what was observed of it until now.
struct Side<'a> {
    known: Known<'a>,
    plan: Plan,
    observed: Observations,
}

impl<'a> Side<'a> {
    fn new(bundle: &'a Bundle, wishes: &Wishes<'_>, session: &Session<'_>) -> Result<Side<'a>, CompareError> {
        let planned = || -> Result<Side<'a>, EvaluateError> {
            let runtime = runtime::choose(wishes.runtime)?;
            let plan = Plan::new(wishes.config.clone(), bundle, runtime.name(), session.mix(), wishes.soak)?;
            Ok(Side { known: Known::of(bundle)?, plan, observed: Observations::default() })
        };
        planned()
            .map_err(|error| CompareError::Evaluate { bundle: bundle.folder().display().to_string(), error })
    }
}

/// Two bundles that are measured in turns.
struct Contest<'a> {
    session: &'a Session<'a>,
    sides: [Side<'a>; 2],
    policy: Policy,
    today: Date,
}

impl Contest<'_> {
    fn reports(&self) -> [Report; 2] {
        self.sides.each_ref().map(|side| {
            let mut report = self.session.report(&side.known, &side.plan, None, side.observed.clone());
            // Looks decide how many there are, not the configuration.
            report.workload.launches = report.launches.len();
            report
        })
    }

    fn options(&self, look: Look) -> Options {
        Options { today: self.today, look, allow_cross_hardware: false }
    }

    /// Refuses what would not be the same work, before anything is measured.
    fn check_alike(&self) -> Result<(), GateError> {
        let [baseline, candidate] = self.reports();
        gate::check_comparable(&candidate, &baseline, &self.policy, &self.options(Look::only()))
    }

    fn judge(
        &self,
        [baseline, candidate]: &[Report; 2],
        order: &[Arm],
        look: Look,
    ) -> Result<Verdict, GateError> {
        gate::paired(baseline, candidate, order, &self.policy, &self.options(look))
    }

    fn run(
        &mut self,
        seed: u64,
        budget: Duration,
        around: &mut Surroundings<'_>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Paired, CompareError> {
        let began = around.clock.now();
        for side in &mut self.sides {
            side.observed = Observations::begin(&side.plan, around, tell);
        }
        let planned = looks();
        let most = planned.last().map_or(0, |(launches, _)| 2 * launches);
        let mut order = gate::draw_order(most / BLOCK, seed);
        let (mut done, mut taken, mut last) = (0, Vec::new(), Look::early());
        'looks: for (launches, look) in planned {
            while done < 2 * launches {
                if done > 0 && around.clock.now().saturating_sub(began) >= budget {
                    tell(Event::BudgetSpent { launches: done });
                    break 'looks;
                }
                self.take(&order[done..done + BLOCK], (done, 2 * launches), around, tell);
                done += BLOCK;
            }
            last = look;
            let verdict = self.judge(&self.reports(), &order[..done], look)?;
            taken.push(Taken { launches, outcome: verdict.outcome });
            if is_settled(&verdict, taken.len() == 1) {
                break;
            }
        }
        order.truncate(done);
        for side in &mut self.sides {
            side.observed.finish(&side.plan, around, tell);
        }
        let reports = self.reports();
        let verdict = self.judge(&reports, &order, last)?;
        let [baseline, candidate] = reports;
        Ok(Paired { seed, order, looks: taken, baseline, candidate, verdict })
    }

    /// A block of launches, of which the first is launch `done` of `of`.
    fn take(
        &mut self,
        block: &[Arm],
        (done, of): (usize, usize),
        around: &mut Surroundings<'_>,
        tell: &mut dyn FnMut(Event),
    ) {
        for (place, arm) in block.iter().enumerate() {
            let Side { plan, observed, .. } = &mut self.sides[usize::from(*arm == Arm::Candidate)];
            observed.launch(plan, (done + place, of), around, tell);
        }
    }
}

/// Whether further launches would change nothing: no speed is left open, one has failed, or launches alone would not
/// settle what is open. The early look cannot tell the latter two.
pub fn is_settled(verdict: &Verdict, early: bool) -> bool {
    let speeds = || verdict.checks.iter().filter(|check| check.statistic.is_some());
    let mut open = speeds().filter(|check| check.status == Status::Inconclusive).peekable();
    if open.peek().is_none() {
        return true;
    }
    let failed = speeds().any(|check| check.status == Status::Fail);
    !early && (failed || open.any(|check| check.more_launches.is_none()))
}

#[cfg(test)]
mod tests;
