//! Kinds of change between two reports: how each acts and on which metrics. One line per kind.

use crate::report::{Case, Metric, Report};
use anemeter_base::vocabulary::Choice;

/// How sure it is that a change of this kind shows in its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// It may show.
    Possible,
    /// It usually shows.
    Likely,
    /// It cannot but do so.
    Direct,
}

/// What more of a number does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    IsSlower,
    IsFaster,
}

/// What a report has of something.
pub(super) enum Value {
    Text(String),
    Number(f64, More),
}

/// A kind of change.
pub(super) struct Kind {
    pub(super) what: &'static str,
    of: fn(&Report) -> Option<Value>,
    pub(super) acts: &'static str,
    pub(super) on: &'static [Metric],
    pub(super) strength: Strength,
}

/// A change that was found.
pub(super) struct KindChange {
    pub(super) kind: &'static Kind,
    pub(super) baseline: String,
    pub(super) candidate: String,
    /// Whether it should slow things down; not known of texts.
    pub(super) slows: Option<bool>,
}

const EVERY: &[Metric] = &[
    Metric::Ttft,
    Metric::Prefill,
    Metric::FirstStep,
    Metric::Tps,
    Metric::InterToken,
    Metric::Latency,
    Metric::PredictionRate,
];
const PREDICTING: &[Metric] = &[Metric::Latency, Metric::PredictionRate];
const PREFILL: &[Metric] = &[Metric::Ttft, Metric::Prefill, Metric::FirstStep];
const DECODE: &[Metric] = &[Metric::Tps, Metric::InterToken];
const LOADING: &[Metric] =
    &[Metric::Load, Metric::Open, Metric::FirstPrediction, Metric::MemoryAtLoad, Metric::MemoryPeak];
const MEMORY: &[Metric] = &[Metric::MemoryPeak, Metric::Tps, Metric::InterToken];
const TOKENIZER: &[Metric] = &[Metric::Tokenizer, Metric::Ttft];

/// Every kind of change.
#[rustfmt::skip]
pub(super) const KINDS: &[Kind] = &[
    kind("slowed down on purpose, %", |r| number(f64::from(r.runtime.slowed_down_pct.unwrap_or(0)), More::IsSlower), "every prediction waits", EVERY, Strength::Direct),
    kind("machine", |r| text(r.machine.chip.clone()), "another chip has other speeds throughout", EVERY, Strength::Direct),
    kind("hardware profile", |r| text(Some(r.header.hardware_profile_key.clone())), "another machine has other speeds throughout", EVERY, Strength::Direct),
    kind("runtime", |r| text(Some(r.runtime.name.to_string())), "another program executes every operation", EVERY, Strength::Direct),
    kind("residency", |r| number(r.residency.as_ref()?.share, More::IsFaster), "work off the Neural Engine runs on slower units", EVERY, Strength::Direct),
    kind("device transitions", |r| number(transitions(r)?, More::IsSlower), "each transition copies and waits", EVERY, Strength::Likely),
    kind("predicted residency", |r| number(predicted(r)?, More::IsFaster), "operations that rules keep off the Neural Engine (a prediction)", EVERY, Strength::Possible),
    kind("compute units", |r| text(Some(r.runtime.compute_units.to_string())), "decides where operations may run", EVERY, Strength::Direct),
    kind("threads", |r| number(r.runtime.threads? as f64, More::IsFaster), "prefill scales with threads, decoding until memory is the limit", EVERY, Strength::Direct),
    kind("numerics", |r| text(r.runtime.numerics.map(|numerics| numerics.to_string())), "rounding at every step costs time", EVERY, Strength::Direct),
    kind("weight bytes per token", |r| number(r.subject.weight_bytes_per_token? as f64, More::IsSlower), "decoding reads all of them for every token", DECODE, Strength::Direct),
    kind("precision", |r| text(Some(r.subject.precision.clone())), "other weights to read and to unpack", EVERY, Strength::Likely),
    kind("package bytes", |r| number(r.subject.package_bytes as f64, More::IsSlower), "more to map, to make ready and to keep", LOADING, Strength::Likely),
    kind("cache form", |r| text(r.subject.kv_form.map(|form| form.to_string())), "keys and values are copied or kept in place", MEMORY, Strength::Likely),
    kind("KV bytes per token", |r| number(r.subject.kv_bytes_per_token as f64, More::IsSlower), "attention reads all of them for every token", MEMORY, Strength::Likely),
    kind("sequence lengths", |r| text(Some(list(&r.workload.seq_lens))), "lengths that are not common are not compared", PREFILL, Strength::Possible),
    kind("cases", |r| text(Some(r.workload.cases.iter().map(|case| &*case.name).collect::<Vec<_>>().join(", "))), "functions and shapes that are not common are not compared", PREDICTING, Strength::Possible),
    kind("FLOPs", |r| number(cost(r, |case| case.flops)?, More::IsSlower), "more arithmetic takes longer", PREDICTING, Strength::Direct),
    kind("weight bytes of a prediction", |r| number(cost(r, |case| case.weight_bytes)?, More::IsSlower), "each prediction reads all of them", PREDICTING, Strength::Direct),
    kind("states", |r| text(r.workload.states.map(|states| states.name().to_owned())), "fresh states are made for every request", PREDICTING, Strength::Possible),
    kind("batch", |r| text(Some(r.workload.batch.to_string())), "more sequences at once take longer together", EVERY, Strength::Direct),
    kind("workload", |r| text(Some(r.workload.digest.clone())), "other prompts, lengths or orders", EVERY, Strength::Possible),
    kind("generated tokens", |r| text(Some(r.workload.generated_tokens.to_string())), "later tokens attend to more", DECODE, Strength::Possible),
    kind("packages", |r| text(Some(r.subject.package_digests.join(" "))), "other operations: compare the packages themselves", EVERY, Strength::Likely),
    kind("checkpoint", |r| text(Some(r.subject.checkpoint_digest.clone())), "other weights of the same sizes take the same time", EVERY, Strength::Possible),
    kind("tokenizer", |r| text(r.subject.tokenizer_digest.clone()), "prompts become other numbers of tokens", TOKENIZER, Strength::Likely),
    kind("system", |r| text(r.machine.os_version.clone()), "drivers and the compiler of models come with it", EVERY, Strength::Likely),
    kind("system build", |r| text(r.machine.os_build.clone()), "models are planned anew by every build", EVERY, Strength::Likely),
    kind("anemeter version", |r| text(Some(r.header.tool_version.clone())), "its kernels and its harness differ", EVERY, Strength::Likely),
    kind("anemeter program", |r| text(r.header.tool_digest.clone()), "another build may have other kernels", EVERY, Strength::Possible),
    kind("commit", |r| text(r.header.git.as_ref().map(|git| git.commit.clone())), "whatever was changed between the two", EVERY, Strength::Possible),
    kind("power source", |r| text(r.conditions_at_start.power_source.map(|source| format!("{source:?}").to_lowercase())), "batteries make chips slower", EVERY, Strength::Likely),
    kind("model", |r| text(Some(r.subject.name.clone())), "another model has other work to do", EVERY, Strength::Likely),
];

const fn kind(
    what: &'static str,
    of: fn(&Report) -> Option<Value>,
    acts: &'static str,
    on: &'static [Metric],
    strength: Strength,
) -> Kind {
    Kind { what, of, acts, on, strength }
}

fn text(value: Option<String>) -> Option<Value> {
    Some(Value::Text(value.unwrap_or_else(|| "unknown".to_owned())))
}

fn number(value: f64, more: More) -> Option<Value> {
    Some(Value::Number(value, more))
}

fn list(seq_lens: &[usize]) -> String {
    seq_lens.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Something that all cases cost together.
fn cost(report: &Report, of: fn(&Case) -> u64) -> Option<f64> {
    let cases = &report.workload.cases;
    (!cases.is_empty()).then(|| cases.iter().map(|case| of(case) as f64).sum())
}

fn transitions(report: &Report) -> Option<f64> {
    let functions = &report.residency.as_ref()?.functions;
    Some(functions.iter().map(|function| function.transitions as f64).sum())
}

/// The smallest predicted share of any function.
fn predicted(report: &Report) -> Option<f64> {
    report.predicted_residency.iter().filter_map(|function| function.share).min_by(f64::total_cmp)
}

/// Everything that differs between two reports.
pub(super) fn changes(baseline: &Report, candidate: &Report) -> Vec<KindChange> {
    KINDS.iter().filter_map(|kind| changed(kind, (kind.of)(baseline), (kind.of)(candidate))).collect()
}

fn changed(kind: &'static Kind, before: Option<Value>, after: Option<Value>) -> Option<KindChange> {
    let slows = match (&before, &after) {
        (Some(Value::Number(before, more)), Some(Value::Number(after, _))) => {
            Some((after > before) == (*more == More::IsSlower))
        }
        _ => None,
    };
    let [baseline, candidate] = [before, after].map(shown);
    (baseline != candidate).then_some(KindChange { kind, baseline, candidate, slows })
}

fn shown(value: Option<Value>) -> String {
    match value {
        None => "unknown".to_owned(),
        Some(Value::Text(text)) => text,
        Some(Value::Number(number, _)) => format!("{}", (number * 1e4).round() / 1e4),
    }
}
