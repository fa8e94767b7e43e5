//! The rules that are scored: both of the gate, the looks of `anemeter compare`, and the rule that compares plain figures.

use anemeter::evaluate::compare::bundles;
use anemeter::gate::{self, Arm, GatesFile, InterimLook, Options, Outcome, Policy, Verdict};
use anemeter::hardware::Profiles;
use anemeter::report::{Launch, Metric, Report, figures};
use anemeter::time::Date;
use anyhow::{Context, Result};

use super::machine::Machine;
use super::simulate::{Regression, Session, blank};

/// Sessions of a stored baseline, launches of each, and launches of a report.
const SESSIONS: u64 = 3;
const LAUNCHES_PER_SESSION: usize = 8;
const LAUNCHES: usize = 10;
/// Blocks that a paired comparison may take beyond its full look.
const EXTRA_BLOCKS: usize = 1;

/// One way to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A report against blessed sessions.
    Stored,
    /// Two packages interleaved.
    Paired,
    /// Two bundles interleaved, looked at again and again as `anemeter compare` does.
    Compare,
    /// Pooled figures of two reports, more than 5 % apart.
    Naive,
}

impl Rule {
    pub(crate) const ALL: [Rule; 4] = [Rule::Stored, Rule::Paired, Rule::Compare, Rule::Naive];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::Stored => "stored baseline (S)",
            Rule::Paired => "interleaved (P)",
            Rule::Compare => "compare, all looks",
            Rule::Naive => "naive, pooled figures",
        }
    }
}

/// What every simulated gate needs.
pub(crate) struct Gate {
    blank: Report,
    policy: Policy,
    today: Date,
}

/// When launches are looked at, and what ends it; the early look is told apart.
struct Sequence<'a> {
    looks: Vec<(usize, InterimLook)>,
    is_settled: &'a dyn Fn(&Verdict, bool) -> bool,
}

/// What a simulated gate came to, and the minutes of benchmark at gate time.
pub(crate) struct Judged {
    pub(crate) outcome: Outcome,
    pub(crate) minutes: f64,
}

impl Gate {
    pub(crate) fn new() -> Result<Gate> {
        let profile = Profiles::built_in()?.of_key("simulated");
        let today = Date::parse("2026-01-31").context("a day")?;
        Ok(Gate { blank: blank()?, policy: Policy::new(&profile, &GatesFile::built_in()?), today })
    }

    /// One gate on a machine whose candidate has a true regression.
    pub(crate) fn judge(
        &self,
        rule: Rule,
        machine: &Machine,
        regression: Regression,
        seed: u64,
    ) -> Result<Judged> {
        match rule {
            Rule::Stored => self.stored(machine, regression, seed),
            Rule::Paired => {
                let is_settled = &|verdict: &Verdict, _| verdict.outcome != Outcome::Inconclusive;
                let looks = gate::paired_looks(EXTRA_BLOCKS);
                self.paired(machine, regression, seed, Sequence { looks, is_settled })
            }
            Rule::Compare => {
                let sequence = Sequence { looks: bundles::looks(), is_settled: &bundles::is_settled };
                self.paired(machine, regression, seed, sequence)
            }
            Rule::Naive => Ok(self.naive(machine, regression, seed)),
        }
    }

    fn options(&self, look: InterimLook) -> Options {
        Options { today: self.today, look, allow_cross_hardware: false }
    }

    fn report(&self, launches: Vec<Launch>) -> Report {
        Report { launches, ..self.blank.clone() }
    }

    fn session(
        &self,
        machine: &Machine,
        launches: usize,
        regression: Regression,
        seed: u64,
    ) -> (Report, f64) {
        let mut session = Session::new(machine, seed);
        let (launches, minutes): (Vec<Launch>, Vec<f64>) =
            (0..launches).map(|_| session.launch(regression)).unzip();
        (self.report(launches), minutes.iter().sum())
    }

    fn stored(&self, machine: &Machine, regression: Regression, seed: u64) -> Result<Judged> {
        let blessed: Vec<Report> = (1..=SESSIONS)
            .map(|number| {
                self.session(machine, LAUNCHES_PER_SESSION, Regression::NONE, seed ^ number << 56).0
            })
            .collect();
        let (candidate, minutes) = self.session(machine, LAUNCHES, regression, seed);
        let sessions: Vec<&Report> = blessed.iter().collect();
        let verdict = gate::judge(&candidate, &sessions, &self.policy, &self.options(InterimLook::only()))?;
        Ok(Judged { outcome: verdict.outcome, minutes })
    }

    /// Launches of both packages in turns, until a look settles it or is the last.
    fn paired(
        &self,
        machine: &Machine,
        regression: Regression,
        seed: u64,
        Sequence { looks, is_settled }: Sequence<'_>,
    ) -> Result<Judged> {
        let mut session = Session::new(machine, seed);
        let most = looks.last().map_or(0, |(launches, _)| *launches);
        let order = gate::draw_order(most / 2, seed ^ 0x5eed);
        let (mut baseline, mut candidate) = (self.report(Vec::new()), self.report(Vec::new()));
        let (mut minutes, mut done, mut outcome) = (0.0, 0, Outcome::Inconclusive);
        for (launches, look) in looks {
            for arm in &order[done..2 * launches] {
                let (report, regression) = match arm {
                    Arm::Baseline => (&mut baseline, Regression::NONE),
                    Arm::Candidate => (&mut candidate, regression),
                };
                let (launch, time) = session.launch(regression);
                report.launches.push(launch);
                minutes += time;
            }
            let early = done == 0;
            done = 2 * launches;
            let options = self.options(look);
            let verdict = gate::paired(&baseline, &candidate, &order[..done], &self.policy, &options)?;
            outcome = verdict.outcome;
            if is_settled(&verdict, early) {
                break;
            }
        }
        Ok(Judged { outcome, minutes })
    }

    fn naive(&self, machine: &Machine, regression: Regression, seed: u64) -> Judged {
        let (baseline, _) = self.session(machine, LAUNCHES, Regression::NONE, seed ^ 1 << 56);
        let (candidate, minutes) = self.session(machine, LAUNCHES, regression, seed);
        let (before, now) = (figures(&baseline.launches), figures(&candidate.launches));
        let worse = before.iter().zip(&now).any(|(before, now)| {
            let (old, new) = (before.summary.percentiles, now.summary.percentiles);
            [(old.p50, new.p50), (old.p95, new.p95)].into_iter().any(|pair| match (before.metric, pair) {
                (Metric::Ttft, (Some(old), Some(new))) => new > old * 1.05,
                (Metric::Tps, (Some(old), Some(new))) => new < old * 0.95,
                _ => false,
            })
        });
        Judged { outcome: if worse { Outcome::Fail } else { Outcome::Pass }, minutes }
    }
}
