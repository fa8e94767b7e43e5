//! Observations, the bundle and the machine become a report.

use super::plan::Plan;
use super::run::Observations;
use crate::bundle::{Manifest, Quality, Verification};
use crate::hardware::{Conditions, Machine, Match};
use crate::report::{
    self, Figure, Header, Metric, PredictedResidency, Report, RuntimeUse, SCHEMA, SpeedLimit, Subject,
    figures, mix_figures,
};

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
}

/// Puts a report together.
pub fn assemble(context: Context<'_>, observed: Observations) -> Report {
    let Context { plan, manifest, machine, profile, .. } = context;
    let figures = figures(&observed.launches);
    let probe = observed.probe;
    let subject = subject(plan, manifest, observed.weight_bytes_per_token);
    let bandwidth = probe.as_ref().map(|probe| probe.bandwidth.clone());
    let source = bandwidth_for(&plan.runtime, profile, bandwidth.as_ref());
    let speed_limits = speed_limits(manifest, &subject, &figures, plan.batch, source);
    Report {
        schema: SCHEMA.to_owned(),
        header: context.header,
        subject,
        runtime: runtime_use(plan),
        noise: context.at_start.noise(&machine),
        machine,
        conditions_at_start: context.at_start,
        conditions_at_end: context.at_end,
        workload: plan.workload(probe.as_ref().map(|probe| probe.clock_resolution_ns)),
        launches: observed.launches,
        mix: mix_figures(&figures, &plan.mix),
        figures,
        speed_limits,
        bandwidth,
        overhead_us_per_step: probe.map(|probe| probe.overhead_us_per_step),
        residency: None,
        residency_note: format!("the {} runtime does not use the Neural Engine", plan.runtime),
        predicted_residency: context.predicted_residency,
        soak: observed.soak,
        verification: context.verification,
        quality: context.quality,
    }
}

fn subject(plan: &Plan, manifest: &Manifest, weight_bytes_per_token: Option<u64>) -> Subject {
    Subject {
        name: manifest.name.clone(),
        architecture: manifest.architecture.name.clone(),
        parameters: manifest.architecture.parameters,
        precision: manifest.settings.precision.clone(),
        kv_form: plan.kv.to_string(),
        kv_bytes_per_token: manifest.architecture.kv_bytes_per_token,
        package_bytes: manifest.chunks.iter().map(|chunk| chunk.file.bytes).sum(),
        weight_bytes_per_token,
        package_digests: manifest.chunks.iter().map(|chunk| chunk.file.digest.clone()).collect(),
        checkpoint_digest: manifest.checkpoint.digest.clone(),
        tokenizer_digest: manifest.tokenizer.as_ref().map(|tokenizer| tokenizer.file.digest.clone()),
    }
}

fn runtime_use(plan: &Plan) -> RuntimeUse {
    RuntimeUse {
        name: plan.runtime.clone(),
        compute_units: "cpu".to_owned(),
        threads: Some(plan.threads),
        numerics: Some(plan.config.numerics.name().to_owned()),
        slowed_down_pct: plan.slow_down_pct,
    }
}

/// The bandwidth that bounds a runtime, and whose figure it is: the probe reads with the processor, so it
/// holds for the `cpu` runtime only.
fn bandwidth_for(
    runtime: &str,
    profile: &Match,
    probe: Option<&report::MeasuredBandwidth>,
) -> Option<(f64, String)> {
    match runtime {
        "cpu" => probe.map(|probe| {
            let source = format!("measured in this run with {} threads", probe.threads);
            (probe.gb_per_s, source)
        }),
        _ => {
            let listed = profile.profile.ane_bandwidth.as_ref();
            listed.map(|listed| (listed.gb_per_s, listed.source.clone()))
        }
    }
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
        let (shape, tps) = (figure.shape?, figure.summary.percentiles.p50?);
        // One reading of the weights serves all sequences of a batch.
        let steps = tps / batch.max(1) as f64;
        let kv_bytes = manifest.kv_bytes(shape) * batch as u64;
        Some(SpeedLimit::new(shape, kv_bytes, weights, bandwidth.clone(), steps))
    };
    rates.filter_map(limit).collect()
}
