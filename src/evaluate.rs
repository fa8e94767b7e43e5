//! The evaluation flow: a bundle on a runtime becomes a report, and a report becomes a baseline.

pub mod bless;
pub mod compare;

use std::time::{Duration, SystemTime};

use crate::bundle::{Bundle, BundleError, KvForm};
use crate::generate::SystemClock;
use crate::hardware::{Conditions, Machine, Match, Profiles, ShapeMix, Source, System, match_profile};
use crate::harness::{
    self, BenchConfig, Context, Event, Launcher, Observations, Plan, PlanError, Surroundings,
};
use crate::lint;
use crate::report::{Header, KvChoice, PredictedResidency, Quality, Report, Verification};
use crate::runtime::{self, RuntimeError};

/// What to measure, and how.
pub struct Wishes<'a> {
    /// The workload.
    pub config: BenchConfig,
    /// Name of the runtime, or `auto`.
    pub runtime: &'a str,
    /// Whether a probe chooses the form of the key-value cache.
    pub probe_kv: bool,
    /// Steps of a long run after the launches.
    pub soak: Option<usize>,
    /// How much slower than need be, in percent.
    pub slow_down_pct: Option<u16>,
    /// Profiles that the machine is matched to.
    pub profiles: &'a Profiles,
}

/// Why nothing was measured.
#[derive(Debug)]
pub enum EvaluateError {
    /// The workload does not fit the bundle.
    Plan(PlanError),
    /// The runtime is not to be had.
    Runtime(RuntimeError),
    /// What is recorded about the bundle cannot be read.
    Record(BundleError),
}

impl From<PlanError> for EvaluateError {
    fn from(error: PlanError) -> EvaluateError {
        EvaluateError::Plan(error)
    }
}

impl From<RuntimeError> for EvaluateError {
    fn from(error: RuntimeError) -> EvaluateError {
        EvaluateError::Runtime(error)
    }
}

impl From<BundleError> for EvaluateError {
    fn from(error: BundleError) -> EvaluateError {
        EvaluateError::Record(error)
    }
}

/// Measures a bundle in workers that `launcher` starts. Failed launches are part of the report.
pub fn measure(
    bundle: &Bundle,
    wishes: &Wishes<'_>,
    launcher: &mut dyn Launcher,
    tell: &mut dyn FnMut(Event),
) -> Result<Report, EvaluateError> {
    let runtime = runtime::choose(wishes.runtime)?;
    let mut session = Session::new(wishes.profiles, &System);
    let known = Known::of(bundle)?;

    let clock = SystemClock::default();
    let rest = &mut |time: Duration| std::thread::sleep(time);
    let mut around = Surroundings { launcher, clock: &clock, source: &System, rest };
    let plan_with = |kv: Option<KvForm>| {
        let mut config = wishes.config.clone();
        config.kv = kv.or(config.kv);
        let plan = Plan::new(config, bundle, runtime.name(), session.mix(), wishes.soak);
        plan.map(|plan| plan.slowed_down(wishes.slow_down_pct))
    };
    let (form, kv_choice) = wishes
        .probe_kv
        .then(|| {
            let floor = session.profile.profile.gating.residency.floor_pct / 100.0;
            let forms = &bundle.manifest().settings.kv;
            let plan_of = &mut |form| plan_with(Some(form)).map_err(|PlanError { problem, .. }| problem);
            harness::choose_form(forms, plan_of, &mut around, floor)
        })
        .unzip();
    let plan = plan_with(form)?;
    session.at_start = Conditions::observe(&System);
    let observed = harness::run(&plan, &mut around, tell);
    Ok(session.report(&known, &plan, kv_choice, observed))
}

/// What the reports of one session share.
struct Session<'a> {
    machine: Machine,
    profile: Match,
    header: Header,
    at_start: Conditions,
    source: &'a dyn Source,
}

/// What is known of a bundle without running it.
struct Known<'a> {
    bundle: &'a Bundle,
    placements: Vec<lint::Placement>,
    verification: Option<Verification>,
    quality: Option<Quality>,
}

impl<'a> Known<'a> {
    fn of(bundle: &'a Bundle) -> Result<Known<'a>, BundleError> {
        let (verification, quality) = (bundle.record()?, bundle.record()?);
        Ok(Known { bundle, placements: predicted_placements(bundle), verification, quality })
    }
}

impl<'a> Session<'a> {
    fn new(profiles: &Profiles, source: &'a dyn Source) -> Session<'a> {
        let machine = Machine::detect(source);
        let profile = match_profile(profiles, &machine);
        let header = harness::header(&profile, SystemTime::now(), source);
        Session { machine, profile, header, at_start: Conditions::observe(source), source }
    }

    fn mix(&self) -> &ShapeMix {
        &self.profile.profile.shape_mix
    }

    /// The report of what was observed until now.
    fn report(
        &self,
        known: &Known<'_>,
        plan: &Plan,
        kv_choice: Option<KvChoice>,
        observed: Observations,
    ) -> Report {
        let context = Context {
            plan,
            manifest: known.bundle.manifest(),
            machine: self.machine.clone(),
            profile: &self.profile,
            header: self.header.clone(),
            at_start: self.at_start.clone(),
            at_end: Conditions::observe(self.source),
            predicted_residency: known.placements.iter().map(predicted_residency).collect(),
            kv_choice,
            verification: known.verification.clone(),
            quality: known.quality.clone(),
        };
        let mut report = harness::assemble(context, observed);
        add_reasons(&mut report, &known.placements);
        report
    }
}

/// What the linter expects of a bundle's packages. A bundle that it cannot read has no prediction.
fn predicted_placements(bundle: &Bundle) -> Vec<lint::Placement> {
    let report = lint::Subject::open(bundle.folder())
        .and_then(|subject| lint::lint(&subject, &lint::Setting::default(), &[]));
    report.map(|report| report.placements).unwrap_or_default()
}

fn predicted_residency(placement: &lint::Placement) -> PredictedResidency {
    PredictedResidency {
        package: placement.package.clone(),
        function: placement.function.clone(),
        shape: placement.shape.clone(),
        share: placement.residency_by_cost,
        transitions: placement.transitions,
    }
}

/// Adds to operations that Core ML plans elsewhere which rules the linter thinks are the reason.
fn add_reasons(report: &mut Report, placements: &[lint::Placement]) {
    let functions = report.residency.iter_mut().flat_map(|residency| &mut residency.functions);
    for function in functions {
        let same = placements.iter().filter(|placement| placement.function == function.function);
        let islands: Vec<&lint::Island> = same.flat_map(|placement| &placement.islands).collect();
        for operation in &mut function.elsewhere {
            let is_it = |name: &String| {
                let words = name.split_once(' ').map(|(kind, name)| format!("{name} ({kind},"));
                words.is_some_and(|words| operation.starts_with(&words))
            };
            if let Some(island) = islands.iter().find(|island| island.names.iter().any(is_it)) {
                let reasons = island.reasons.join(", ");
                operation.push_str(&format!("; lint: {reasons}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{FunctionResidency, Residency, testing};

    #[test]
    fn operations_elsewhere_get_the_reasons_of_the_linter() {
        let island = lint::Island {
            operations: 1,
            names: vec!["gather rows".to_owned()],
            cost: 0.1,
            reasons: vec!["A22", "lookup"],
        };
        let placement = lint::Placement {
            basis: "predicted",
            package: "model.mlpackage".to_owned(),
            function: "decode".to_owned(),
            shape: None,
            operations: 2,
            on_ane: 1,
            residency_by_cost: Some(0.9),
            residency_by_operations: Some(0.5),
            transitions: 1,
            islands: vec![island],
        };
        let mut report = testing::report();
        let function = FunctionResidency {
            function: "decode".to_owned(),
            package: None,
            share: 0.9,
            by_count: None,
            eligible: None,
            unplanned: 0,
            transitions: 1,
            elsewhere: ["rows (gather, CPU, unsupported)", "rows_2 (gather, CPU, unsupported)"]
                .map(str::to_owned)
                .to_vec(),
        };
        report.residency = Some(Residency { share: 0.9, verified: false, functions: vec![function] });
        add_reasons(&mut report, &[placement]);
        let found = &report.residency.unwrap().functions[0].elsewhere;
        assert_eq!(
            found,
            &["rows (gather, CPU, unsupported); lint: A22, lookup", "rows_2 (gather, CPU, unsupported)"]
        );
    }
}
