//! The evaluation flow: a bundle on a runtime becomes a report.

use std::time::{Duration, SystemTime};

use crate::bundle::{Bundle, KvForm};
use crate::generate::SystemClock;
use crate::hardware::{Conditions, Machine, Profiles, System, match_profile};
use crate::harness::{self, BenchConfig, Context, Event, Launcher, Plan, PlanError, Surroundings};
use crate::lint;
use crate::report::{PredictedResidency, Report};
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

/// Measures a bundle in workers that `launcher` starts. Failed launches are part of the report.
pub fn measure(
    bundle: &Bundle,
    wishes: &Wishes<'_>,
    launcher: &mut dyn Launcher,
    tell: &mut dyn FnMut(Event),
) -> Result<Report, EvaluateError> {
    let runtime = runtime::choose(wishes.runtime)?;
    let machine = Machine::detect(&System);
    let profile = match_profile(wishes.profiles, &machine);
    let mix = &profile.profile.shape_mix;
    let header = harness::header(&profile, SystemTime::now(), &System);

    let clock = SystemClock::default();
    let rest = &mut |time: Duration| std::thread::sleep(time);
    let mut around = Surroundings { launcher, clock: &clock, source: &System, rest };
    let plan_with = |kv: Option<KvForm>| {
        let mut config = wishes.config.clone();
        config.kv = kv.or(config.kv);
        Plan::new(config, bundle, runtime.name(), mix, wishes.soak)
    };
    let (form, kv_choice) = wishes
        .probe_kv
        .then(|| {
            let floor = profile.profile.gating.residency.floor_pct / 100.0;
            let forms = &bundle.manifest().settings.kv;
            let plan_of = &mut |form| plan_with(Some(form)).map_err(|PlanError { problem, .. }| problem);
            harness::choose_form(forms, plan_of, &mut around, floor)
        })
        .unzip();
    let plan = plan_with(form)?;
    let at_start = Conditions::observe(&System);
    let observed = harness::run(&plan, &mut around, tell);
    let at_end = Conditions::observe(&System);

    let context = Context {
        plan: &plan,
        manifest: bundle.manifest(),
        machine,
        profile: &profile,
        header,
        at_start,
        at_end,
        predicted_residency: predicted_residency(bundle),
        kv_choice,
    };
    Ok(harness::assemble(context, observed))
}

/// What the linter expects of a bundle's packages. A bundle that it cannot read has no prediction.
fn predicted_residency(bundle: &Bundle) -> Vec<PredictedResidency> {
    let report = lint::Subject::open(bundle.folder())
        .and_then(|subject| lint::lint(&subject, &lint::Setting::default(), &[]));
    let placements = report.map(|report| report.placements).unwrap_or_default();
    let predicted = placements.into_iter().map(|placement| PredictedResidency {
        package: placement.package,
        function: placement.function,
        shape: placement.shape,
        share: placement.residency_by_cost,
        transitions: placement.transitions,
    });
    predicted.collect()
}
