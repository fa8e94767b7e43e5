//! Observations, the bundle and the machine become a report.

use super::compression::compressed_weights;
use super::plan::{Plan, PlannedWork};
use super::predict::PlannedCase;
use super::residency::{MeasuredWork, load_regimes, residency};
use super::run::{Observations, Placement};
use anemeter_base::engine::{Engine, EngineKind};
use anemeter_base::hardware::{Conditions, Machine, Match};
use anemeter_base::vocabulary::{ComputeUnits, RuntimeName};
use anemeter_convert::bundle::Manifest;
use anemeter_measure::report::{
    Failure, Figure, Header, KvChoice, Launch, MeasuredBandwidth, Metric, PredictedResidency, Quality,
    Report, Residency, Roofline, RuntimeUse, SCHEMA, SpeedLimit, Subject, Verification, figures, mix_figures,
};
use anemeter_mil::cost;

/// What a report needs besides observations.
pub struct Context<'a> {
    /// What was run.
    pub plan: &'a Plan,
    /// The bundle's description.
    pub manifest: &'a Manifest,
    /// The machine.
    pub machine: Machine,
    /// Its profile.
    pub profile: &'a Match,
    /// When, by what and where.
    pub header: Header,
    /// The machine before the first launch.
    pub at_start: Conditions,
    /// The machine after the last.
    pub at_end: Conditions,
    /// Where static rules expect operations to run.
    pub predicted_residency: Vec<PredictedResidency>,
    /// What `verify` found about the bundle's packages.
    pub verification: Option<Verification>,
    /// What `eval` found about them.
    pub quality: Option<Quality>,
    /// How the form of the KV cache was chosen, if a probe was asked to.
    pub kv_choice: Option<KvChoice>,
}

/// Puts a report together.
pub fn assemble(context: Context<'_>, observed: Observations) -> Report {
    let Context { plan, manifest, machine, profile, .. } = context;
    let figures = figures(&observed.launches);
    let probe = observed.probe;
    let subject = subject(plan, manifest, observed.weight_bytes_per_token);
    let bandwidth = probe.as_ref().map(|probe| probe.bandwidth.clone());
    let source = bandwidth_for(plan.runtime, profile, bandwidth.as_ref());
    let rooflines = source.as_ref().map_or_else(Vec::new, |source| rooflines(plan, &figures, source));
    let speed_limits = match &plan.work {
        PlannedWork::Generate(work) => speed_limits(manifest, &subject, &figures, work.batch, source),
        PlannedWork::Predict(_) => Vec::new(),
    };
    let (residency, residency_note) = match plan.runtime {
        RuntimeName::CoreAi => (None, untold_placement(observed.engine.as_ref())),
        _ => placement((plan, manifest), observed.placement.as_ref(), &observed.launches),
    };
    let placed = observed.placement.as_ref().and_then(|placement| Some(&placement.as_ref().ok()?.placed));
    let units = placed.and_then(|placed| placed.units);
    let load_regimes = load_regimes(placed, &observed.launches);
    Report {
        schema: SCHEMA.to_owned(),
        header: context.header,
        subject,
        runtime: runtime_use(plan, units, observed.remarks, observed.engine),
        noise: context.at_start.noise(&machine),
        machine,
        conditions_at_start: context.at_start,
        conditions_at_end: context.at_end,
        workload: plan.workload(probe.as_ref().map(|probe| probe.clock_resolution_ns)),
        launches: observed.launches,
        mix: mix_figures(&figures, &plan.mix),
        figures,
        speed_limits,
        rooflines,
        bandwidth,
        // It is that of a step that generates a token.
        overhead_us_per_step: probe
            .filter(|_| matches!(plan.work, PlannedWork::Generate(_)))
            .map(|probe| probe.overhead_us_per_step),
        kv_choice: context.kv_choice,
        load_regimes,
        residency,
        residency_note,
        predicted_residency: context.predicted_residency,
        soak: observed.soak,
        verification: context.verification,
        quality: context.quality,
        compression: compressed_weights(manifest),
    }
}

fn subject(plan: &Plan, manifest: &Manifest, weight_bytes_per_token: Option<u64>) -> Subject {
    let architecture = manifest.architecture.as_ref();
    Subject {
        name: manifest.name.clone(),
        origin: manifest.origin,
        architecture: architecture.map(|of| of.name.clone()).unwrap_or_default(),
        parameters: architecture.map_or(0, |of| of.parameters),
        precision: manifest.precision().to_owned(),
        kv_form: match &plan.work {
            PlannedWork::Generate(work) => Some(work.kv),
            PlannedWork::Predict(_) => None,
        },
        kv_bytes_per_token: architecture.map_or(0, |of| of.kv_bytes_per_token),
        package_bytes: manifest.files_of(plan.runtime).map(|file| file.bytes).sum(),
        weight_bytes_per_token,
        package_digests: manifest.digests_of(plan.runtime).cloned().collect(),
        checkpoint_digest: manifest.checkpoint.as_ref().map(|of| of.digest.clone()).unwrap_or_default(),
        tokenizer_digest: manifest.tokenizer.as_ref().map(|tokenizer| tokenizer.file.digest.clone()),
    }
}

/// Why it is not known where Core AI ran operations.
fn untold_placement(engine: Option<&Engine>) -> String {
    let caution = engine.and_then(Engine::caution);
    caution.unwrap_or_else(|| {
        "Core AI does not tell where operations run, so nothing is claimed about the Neural Engine".to_owned()
    })
}

/// Where operations ran, and what that is worth or why it is not known.
fn placement(
    (plan, manifest): (&Plan, &Manifest),
    placement: Option<&Result<Placement, Failure>>,
    launches: &[Launch],
) -> (Option<Residency>, String) {
    match placement {
        None => (None, format!("the {} runtime does not use the Neural Engine", plan.runtime)),
        Some(Ok(Placement { placed, said })) => {
            let cases = match &plan.work {
                PlannedWork::Generate(_) => Vec::new(),
                PlannedWork::Predict(work) => work.wanted.cases(),
            };
            let (contract, timed) = (manifest.contract.as_ref(), &plan.soak_place());
            residency(placed, said, launches, MeasuredWork { cases: &cases, contract, timed })
        }
        Some(Err(failure)) => (None, format!("where operations ran is not known: asking {failure}")),
    }
}

/// What executed the model; the units are those that the runtime itself named, or else those that it was asked for.
fn runtime_use(
    plan: &Plan,
    units: Option<ComputeUnits>,
    remarks: Vec<String>,
    engine: Option<Engine>,
) -> RuntimeUse {
    let has_units = match plan.runtime {
        RuntimeName::CoreMl => true,
        RuntimeName::CoreAi => {
            engine.as_ref().is_some_and(|engine| engine.kind == EngineKind::SystemFramework)
        }
        RuntimeName::Cpu | RuntimeName::CoreMlRs => false,
    };
    let is_ours = !matches!(plan.runtime, RuntimeName::CoreMl | RuntimeName::CoreAi);
    RuntimeUse {
        name: plan.runtime,
        compute_units: if has_units { units.unwrap_or(plan.units) } else { ComputeUnits::Cpu },
        threads: is_ours.then_some(plan.threads),
        numerics: is_ours.then_some(plan.config.numerics),
        slowed_down_pct: plan.slow_down_pct,
        remarks,
        engine,
    }
}

/// The bandwidth that bounds a runtime, and whose figure it is: the probe reads with the processor, so it
/// holds for the `cpu` runtime only.
fn bandwidth_for(
    runtime: RuntimeName,
    profile: &Match,
    probe: Option<&MeasuredBandwidth>,
) -> Option<(f64, String)> {
    match runtime {
        RuntimeName::Cpu => probe.map(|probe| {
            let source = match probe.threads {
                1 => "measured in this run with 1 thread".to_owned(),
                threads => format!("measured in this run with {threads} threads"),
            };
            (probe.gb_per_s, source)
        }),
        // Where Core AI executes is not known.
        RuntimeName::CoreAi => None,
        RuntimeName::CoreMl | RuntimeName::CoreMlRs => {
            let listed = profile.profile.ane_bandwidth.as_ref();
            listed.map(|listed| (listed.gb_per_s, listed.source.clone()))
        }
    }
}

/// How far each case is from what the machine allows. Only of Neural Engines is it known when arithmetic is the limit.
fn rooflines(plan: &Plan, figures: &[Figure], bandwidth: &(f64, String)) -> Vec<Roofline> {
    let PlannedWork::Predict(work) = &plan.work else { return Vec::new() };
    let balance = (plan.runtime != RuntimeName::Cpu).then_some(cost::BALANCE);
    let bound = |planned: &PlannedCase| {
        let case = &planned.case;
        let is_it =
            |figure: &&Figure| figure.metric == Metric::Latency && figure.case.as_ref() == Some(&case.name);
        let p50 = figures.iter().find(is_it)?.summary.percentiles.p50?;
        Roofline::new(case, bandwidth, balance, p50)
    };
    work.wanted.cases.iter().filter_map(bound).collect()
}

fn speed_limits(
    manifest: &Manifest,
    subject: &Subject,
    figures: &[Figure],
    batch: usize,
    bandwidth: Option<(f64, String)>,
) -> Vec<SpeedLimit> {
    let (Some(weights), Some(bandwidth)) = (subject.weight_bytes_per_token, bandwidth) else {
        return Vec::new();
    };
    let rates = figures.iter().filter(|figure| figure.metric == Metric::Tps);
    let limit = |figure: &Figure| {
        let (seq_len, tps) = (figure.seq_len?, figure.summary.percentiles.p50?);
        // One reading of the weights serves all sequences of a batch.
        let steps = tps / batch.max(1) as f64;
        let kv_bytes = manifest.kv_bytes(seq_len) * batch as u64;
        Some(SpeedLimit::new(seq_len, kv_bytes, weights, bandwidth.clone(), steps))
    };
    rates.filter_map(limit).collect()
}
