//! Two bundles in one session, their launches interleaved in an order that is drawn, until the verdict is settled.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::advice::{Advice, Remedy};
use crate::bundle::Bundle;
use crate::evaluate::bench::{BenchContext, BundleFacts, in_this_system};
use crate::evaluate::{Baseline, BenchRequest, EvaluateError, GateRules};
use crate::gate::{self, Arm, GateError, InterimLook, Outcome, Status, Verdict};
use crate::harness::{BenchEnv, Event, Launcher, Observations, Plan};
use crate::report::Report;
use crate::runtime;
use crate::stats::BLOCK;

/// Blocks of launches after the full look, at most: later looks have next to no false alarms left to spend.
const EXTRA_BLOCKS: usize = 5;

/// When launches are looked at, and what may come of each look; all of them together spend the false alarms of one.
pub fn looks() -> Vec<(usize, InterimLook)> {
    gate::paired_looks(EXTRA_BLOCKS)
}

/// What a paired comparison gives.
#[derive(Debug, Clone, PartialEq)]
pub struct PairedComparison {
    /// Seed of the order.
    pub seed: u64,
    /// The launches in the order in which they ran.
    pub order: Vec<Arm>,
    /// Every look at the launches.
    pub looks: Vec<LookOutcome>,
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
pub struct LookOutcome {
    /// Launches of each bundle.
    pub launches: usize,
    /// What was seen.
    pub outcome: Outcome,
}

/// Why two bundles were not compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A bundle cannot be measured as requested.
    #[error("{bundle}: {error}")]
    Evaluate {
        /// The bundle.
        bundle: String,
        /// Why.
        error: EvaluateError,
    },
    /// The two cannot be measured alike, or what was measured cannot be judged.
    #[error(transparent)]
    Gate(#[from] GateError),
}

impl Advice for CompareError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            CompareError::Evaluate { error, .. } => error.remedy(),
            CompareError::Gate(_) => Some(Remedy::CommonWorkload),
        }
    }

    fn is_environment(&self) -> bool {
        matches!(self, CompareError::Evaluate { error, .. } if error.is_environment())
    }
}

/// Measures two bundles, the baseline first, in workers that `launcher` starts, and judges the second. No block of
/// launches begins after `budget`.
pub fn compare(
    bundles: [&Bundle; 2],
    request: &BenchRequest<'_>,
    rules: &GateRules,
    budget: Duration,
    launcher: &mut dyn Launcher,
    on_event: &mut dyn FnMut(Event),
) -> Result<PairedComparison, CompareError> {
    in_this_system(launcher, |env| compare_in(bundles, request, (rules, budget), env, on_event))
}

fn compare_in(
    [baseline, candidate]: [&Bundle; 2],
    request: &BenchRequest<'_>,
    (rules, budget): (&GateRules, Duration),
    env: &mut BenchEnv<'_>,
    on_event: &mut dyn FnMut(Event),
) -> Result<PairedComparison, CompareError> {
    let context = BenchContext::new(request.profiles, env.source);
    let sides = [Side::new(baseline, request, &context)?, Side::new(candidate, request, &context)?];
    let mut contest = InterleavedRun { context: &context, sides, rules };
    contest.check_alike()?;
    contest.run(request.config.seed, budget, env, on_event)
}

/// One of the two bundles and what was observed of it until now.
struct Side<'a> {
    facts: BundleFacts<'a>,
    plan: Plan,
    observed: Observations,
}

impl<'a> Side<'a> {
    fn new(
        bundle: &'a Bundle,
        request: &BenchRequest<'_>,
        context: &BenchContext<'_>,
    ) -> Result<Side<'a>, CompareError> {
        let planned = || -> Result<Side<'a>, EvaluateError> {
            let runtime = runtime::choose(request.runtime.or(bundle.manifest().only_runtime()))?;
            let plan =
                Plan::new(request.config.clone(), bundle, runtime.name(), context.mix(), request.soak)?;
            Ok(Side {
                facts: BundleFacts::of(bundle, runtime.name())?,
                plan,
                observed: Observations::default(),
            })
        };
        planned()
            .map_err(|error| CompareError::Evaluate { bundle: bundle.folder().display().to_string(), error })
    }
}

/// Two bundles that are measured in turns.
struct InterleavedRun<'a> {
    context: &'a BenchContext<'a>,
    sides: [Side<'a>; 2],
    rules: &'a GateRules,
}

impl InterleavedRun<'_> {
    fn reports(&self) -> [Report; 2] {
        self.sides.each_ref().map(|side| {
            let mut report = self.context.report(&side.facts, &side.plan, None, side.observed.clone());
            // Looks decide how many there are, not the configuration.
            report.workload.launches = report.launches.len();
            report
        })
    }

    /// Refuses what would not be the same work, before anything is measured.
    fn check_alike(&self) -> Result<(), GateError> {
        let [baseline, candidate] = self.reports();
        self.rules.check_comparable(&candidate, &baseline)
    }

    fn judge(
        &self,
        [report, candidate]: &[Report; 2],
        order: &[Arm],
        look: InterimLook,
    ) -> Result<Verdict, GateError> {
        self.rules.judge(candidate, Baseline::Interleaved { report, order }, look)
    }

    fn run(
        &mut self,
        seed: u64,
        budget: Duration,
        env: &mut BenchEnv<'_>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<PairedComparison, CompareError> {
        let began = env.clock.now();
        for side in &mut self.sides {
            side.observed = Observations::begin(&side.plan, env, on_event);
        }
        let planned = looks();
        let most = planned.last().map_or(0, |(launches, _)| 2 * launches);
        let mut order = gate::draw_order(most / BLOCK, seed);
        let (mut done, mut taken, mut last) = (0, Vec::new(), InterimLook::early());
        'looks: for (launches, look) in planned {
            while done < 2 * launches {
                if done > 0 && env.clock.now().saturating_sub(began) >= budget {
                    on_event(Event::BudgetSpent { launches: done });
                    break 'looks;
                }
                self.take(&order[done..done + BLOCK], (done, 2 * launches), env, on_event);
                done += BLOCK;
            }
            last = look;
            let verdict = self.judge(&self.reports(), &order[..done], look)?;
            taken.push(LookOutcome { launches, outcome: verdict.outcome });
            if is_settled(&verdict, taken.len() == 1) {
                break;
            }
        }
        order.truncate(done);
        for side in &mut self.sides {
            side.observed.finish(&side.plan, env, on_event);
        }
        let reports = self.reports();
        let verdict = self.judge(&reports, &order, last)?;
        let [baseline, candidate] = reports;
        Ok(PairedComparison { seed, order, looks: taken, baseline, candidate, verdict })
    }

    /// A block of launches, of which the first is launch `done` of `of`.
    fn take(
        &mut self,
        block: &[Arm],
        (done, of): (usize, usize),
        env: &mut BenchEnv<'_>,
        on_event: &mut dyn FnMut(Event),
    ) {
        for (place, arm) in block.iter().enumerate() {
            let Side { plan, observed, .. } = &mut self.sides[usize::from(*arm == Arm::Candidate)];
            observed.launch(plan, (done + place, of), env, on_event);
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
