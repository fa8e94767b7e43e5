//! A benchmark: a bundle on a runtime becomes a report.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::advice::{Advice, Remedy};
use crate::bundle::{Bundle, BundleError};
use crate::generate::SystemClock;
use crate::hardware::{Conditions, Machine, Match, ProductionMix, Profiles, Source, System, match_profile};
use crate::harness::records;
use crate::harness::{self, BenchConfig, BenchEnv, Context, Event, Launcher, Observations, Plan, PlanError};
use crate::lint::{self, LintError};
use crate::report::{Header, KvChoice, PredictedResidency, Quality, Report, Verification};
use crate::runtime::{self, RuntimeError};
use crate::vocabulary::{KvForm, RuntimeName};

/// What to measure, and how.
pub struct BenchRequest<'a> {
    /// The workload.
    pub config: BenchConfig,
    /// The runtime; without one the first that is available.
    pub runtime: Option<RuntimeName>,
    /// Whether a probe chooses the form of the KV cache.
    pub probe_kv: bool,
    /// Steps of a long run after the launches.
    pub soak: Option<usize>,
    /// How much slower than need be, in percent.
    pub slow_down_pct: Option<u16>,
    /// Profiles that the machine is matched to.
    pub profiles: &'a Profiles,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The workload does not fit the bundle.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The runtime is not available.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// What is recorded about the bundle cannot be read.
    #[error(transparent)]
    Record(#[from] BundleError),
    /// The placement of the bundle's operations cannot be predicted.
    #[error(transparent)]
    Lint(#[from] LintError),
}

impl Advice for EvaluateError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            EvaluateError::Plan(error) => error.remedy(),
            EvaluateError::Runtime(error) => error.remedy(),
            EvaluateError::Record(error) => error.remedy(),
            EvaluateError::Lint(error) => error.remedy(),
        }
    }

    fn is_environment(&self) -> bool {
        matches!(self, EvaluateError::Runtime(error) if error.is_environment())
    }
}

/// Measures a bundle in workers that `launcher` starts. Failed launches are part of the report.
pub fn measure(
    bundle: &Bundle,
    request: &BenchRequest<'_>,
    launcher: &mut dyn Launcher,
    on_event: &mut dyn FnMut(Event),
) -> Result<Report, EvaluateError> {
    in_this_system(launcher, |env| measure_in(bundle, request, env, on_event))
}

/// Gives a benchmark the clock and the machine that are there.
pub(super) fn in_this_system<T>(launcher: &mut dyn Launcher, run: impl FnOnce(&mut BenchEnv<'_>) -> T) -> T {
    let clock = SystemClock::default();
    let sleep = &mut |time: Duration| std::thread::sleep(time);
    run(&mut BenchEnv { launcher, clock: &clock, source: &System, sleep })
}

pub(super) fn measure_in(
    bundle: &Bundle,
    request: &BenchRequest<'_>,
    env: &mut BenchEnv<'_>,
    on_event: &mut dyn FnMut(Event),
) -> Result<Report, EvaluateError> {
    let runtime = runtime::choose(request.runtime.or(bundle.manifest().only_runtime()))?;
    let mut context = BenchContext::new(request.profiles, env.source);
    let facts = BundleFacts::of(bundle, runtime.name())?;
    let plan_with = |kv: Option<KvForm>| {
        let mut config = request.config.clone();
        config.kv = kv.or(config.kv);
        let plan = Plan::new(config, bundle, runtime.name(), context.mix(), request.soak);
        plan.map(|plan| plan.slowed_down(request.slow_down_pct))
    };
    let mut kv_choice = None;
    let mut form = None;
    if request.probe_kv {
        let floor = context.profile.profile.gating.residency.floor_pct / 100.0;
        let forms = bundle.language_model()?.forms();
        let plan_of = &mut |form| plan_with(Some(form));
        let (chosen, why) = harness::choose_form(&forms, plan_of, env, floor);
        (form, kv_choice) = (Some(chosen), Some(why));
    }
    let plan = plan_with(form)?;
    context.at_start = Conditions::observe(env.source);
    let observed = harness::run(&plan, env, on_event);
    Ok(context.report(&facts, &plan, kv_choice, observed))
}

/// What the reports of one benchmark share.
pub(super) struct BenchContext<'a> {
    machine: Machine,
    profile: Match,
    header: Header,
    at_start: Conditions,
    source: &'a dyn Source,
}

/// What is known of a bundle without running it.
pub(super) struct BundleFacts<'a> {
    bundle: &'a Bundle,
    placements: Vec<lint::Placement>,
    verification: Option<Verification>,
    quality: Option<Quality>,
}

impl<'a> BundleFacts<'a> {
    pub(super) fn of(bundle: &'a Bundle, runtime: RuntimeName) -> Result<BundleFacts<'a>, EvaluateError> {
        Ok(BundleFacts {
            bundle,
            placements: placements(bundle, runtime)?,
            verification: records::read::<Verification>(bundle, runtime)?,
            quality: records::read::<Quality>(bundle, runtime)?,
        })
    }
}

/// Where operations are predicted to run. It is about packages under Core ML: nothing is predicted of Core AI.
fn placements(bundle: &Bundle, runtime: RuntimeName) -> Result<Vec<lint::Placement>, EvaluateError> {
    if runtime == RuntimeName::CoreAi {
        return Ok(Vec::new());
    }
    let packages = bundle.manifest().chunks.iter().map(|chunk| bundle.file_for(chunk, runtime));
    let packages: Vec<PathBuf> = packages.collect::<Result<_, _>>()?;
    let subject = lint::Subject::of_packages(bundle.source(), packages)?;
    Ok(lint::lint(&subject, &lint::Setting::default(), &[])?.placements)
}

impl<'a> BenchContext<'a> {
    pub(super) fn new(profiles: &Profiles, source: &'a dyn Source) -> BenchContext<'a> {
        let machine = Machine::detect(source);
        let profile = match_profile(profiles, &machine);
        let header = harness::header(&profile, SystemTime::now(), source);
        BenchContext { machine, profile, header, at_start: Conditions::observe(source), source }
    }

    pub(super) fn mix(&self) -> &ProductionMix {
        &self.profile.profile.production_mix
    }

    /// The report of what was observed until now.
    pub(super) fn report(
        &self,
        facts: &BundleFacts<'_>,
        plan: &Plan,
        kv_choice: Option<KvChoice>,
        observed: Observations,
    ) -> Report {
        let context = Context {
            plan,
            manifest: facts.bundle.manifest(),
            machine: self.machine.clone(),
            profile: &self.profile,
            header: self.header.clone(),
            at_start: self.at_start.clone(),
            at_end: Conditions::observe(self.source),
            predicted_residency: facts.placements.iter().map(predicted_residency).collect(),
            kv_choice,
            verification: facts.verification.clone(),
            quality: facts.quality.clone(),
        };
        let mut report = harness::assemble(context, observed);
        add_reasons(&mut report, &facts.placements);
        report
    }
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

/// Adds to operations that Core ML plans off the Neural Engine which rules of the linter expect them there. A function
/// is predicted once per shape; an operation gets the reasons of all of them.
fn add_reasons(report: &mut Report, placements: &[lint::Placement]) {
    let mut reasons: HashMap<[&str; 3], Vec<&str>> = HashMap::new();
    for placement in placements {
        for operation in placement.islands.iter().flat_map(|island| &island.operations) {
            let found =
                reasons.entry([&placement.package, &placement.function, &operation.name]).or_default();
            found.extend(&operation.reasons);
        }
    }
    for function in report.residency.iter_mut().flat_map(|residency| &mut residency.functions) {
        for operation in &mut function.not_on_ane {
            let key = [function.package.as_str(), &function.function, &operation.name];
            let found: BTreeSet<&str> = reasons.get(&key).into_iter().flatten().copied().collect();
            operation.reasons = found.into_iter().map(ToOwned::to_owned).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{FunctionResidency, OffAneOperation, Residency, testing};
    use crate::vocabulary::Device;

    const OPERATIONS: usize = 12;

    fn predicted(package: &str, reason: &'static str) -> lint::Placement {
        let operation = |index: usize| lint::IslandOperation {
            name: format!("rows_{index}"),
            kind: "gather".to_owned(),
            reasons: vec![reason],
        };
        let operations = (0..OPERATIONS).map(operation).collect();
        lint::Placement {
            basis: "predicted",
            package: package.to_owned(),
            function: "decode".to_owned(),
            shape: None,
            operations: OPERATIONS,
            on_ane: 0,
            residency_by_cost: Some(0.9),
            residency_by_operations: Some(0.5),
            transitions: 1,
            islands: vec![lint::PredictedIsland { operations, cost: 0.1, reasons: vec![reason] }],
        }
    }

    fn planned(package: &str) -> FunctionResidency {
        let operation = |index: usize| OffAneOperation {
            name: format!("rows_{index}"),
            kind: "gather".to_owned(),
            device: Device::Cpu,
            eligible: false,
            reasons: Vec::new(),
        };
        FunctionResidency {
            function: "decode".to_owned(),
            package: package.to_owned(),
            share: Some(0.9),
            by_count: None,
            eligible: None,
            unplanned: 0,
            transitions: 1,
            not_on_ane: (0..=OPERATIONS).map(operation).collect(),
        }
    }

    #[test]
    fn every_operation_gets_the_reasons_of_its_own_chunk() {
        let mut report = testing::report();
        let functions = vec![planned("a.mlpackage"), planned("b.mlpackage")];
        report.residency = Some(Residency { share: 0.9, verified: false, functions });
        add_reasons(&mut report, &[predicted("a.mlpackage", "A22"), predicted("b.mlpackage", "lookup")]);
        for (function, reason) in report.residency.unwrap().functions.iter().zip(["A22", "lookup"]) {
            let (known, unknown) = function.not_on_ane.split_at(OPERATIONS);
            assert!(known.iter().all(|operation| operation.reasons == [reason]), "{known:?}");
            assert!(unknown[0].reasons.is_empty());
        }
    }
}
