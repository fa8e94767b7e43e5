//! Whether a report and its baseline may be compared at all, and whether their samples are usable.

use std::fmt;

use super::policy::Policy;
use crate::report::{Outcome, Prediction, Report, Request};
use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::vocabulary::Choice;

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The two were not measured alike.
    #[error("not comparable with the baseline: {}", listed(.0))]
    NotComparable(Vec<Difference>),
    /// No session was given to compare with.
    #[error("there is no blessed session to compare with")]
    NoBaseline,
    /// A report cannot be judged.
    #[error("{which}: {problem}")]
    Unusable {
        /// Which report.
        which: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The order of paired launches cannot be randomised.
    #[error("the order of launches {0}")]
    Order(String),
}

impl Advice for GateError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            GateError::NotComparable(differences)
                if differences.iter().all(|difference| difference.what == PROFILE) =>
            {
                Some(Remedy::AllowCrossHardware)
            }
            GateError::NotComparable(_) => {
                Some("measure with the workload, runtime and form of the baseline, or bless a new one".into())
            }
            GateError::NoBaseline => Some(Remedy::Bless),
            GateError::Unusable { .. } => Some(Remedy::Measure),
            GateError::Order(_) => None,
        }
    }
}

/// Something that a report and its baseline do not share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What differs, such as `runtime`.
    pub what: &'static str,
    /// The baseline's.
    pub baseline: String,
    /// The candidate's.
    pub candidate: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { what, baseline, candidate } = self;
        let (baseline, candidate) = (baseline.escape_debug(), candidate.escape_debug());
        write!(f, "{what} is `{candidate}`, the baseline's is `{baseline}`")
    }
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

const PROFILE: &str = "hardware profile";

/// What two reports must share, by name.
fn traits(report: &Report) -> [(&'static str, String); 13] {
    let Report { subject, runtime, workload, .. } = report;
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    [
        ("model", subject.name.clone()),
        ("runtime", runtime.name.to_string()),
        ("compute units", runtime.compute_units.to_string()),
        ("number of threads", or_none(runtime.threads.map(|threads| threads.to_string()))),
        ("numerics", or_none(runtime.numerics.map(|numerics| numerics.to_string()))),
        ("batch", workload.batch.to_string()),
        ("kind of workload", workload.kind.name().to_owned()),
        ("cache form", or_none(subject.kv_form.map(|form| form.to_string()))),
        ("list of sequence lengths", list(&workload.seq_lens)),
        ("list of cases", workload.cases.iter().map(|case| &*case.name).collect::<Vec<_>>().join(", ")),
        ("number of generated tokens", workload.generated_tokens.to_string()),
        // The digest covers prompts, seed and rounds; what people need to read has a line of its own above.
        ("workload", workload.digest.clone()),
        ("operating system", report.machine.os.clone()),
    ]
}

fn list(seq_lens: &[usize]) -> String {
    seq_lens.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Whether two reports are of different hardware profiles.
pub(super) fn crosses_hardware(candidate: &Report, session: &Report) -> bool {
    candidate.header.hardware_profile_key != session.header.hardware_profile_key
}

/// Everything that keeps a report from being compared with a session of the baseline.
pub(super) fn differences(
    candidate: &Report,
    session: &Report,
    policy: &Policy,
    cross_hardware: bool,
) -> Vec<Difference> {
    let refuse_profile = policy.require_same_profile && !cross_hardware;
    let profile = (refuse_profile && crosses_hardware(candidate, session)).then(|| Difference {
        what: PROFILE,
        baseline: session.header.hardware_profile_key.clone(),
        candidate: candidate.header.hardware_profile_key.clone(),
    });
    // Machines of different profiles have different numbers of cores.
    let tolerated = |what: &str| cross_hardware && what == "number of threads";
    let pairs = traits(session).into_iter().zip(traits(candidate));
    let others = pairs.filter_map(|((what, baseline), (_, candidate))| {
        let differs = baseline != candidate && !tolerated(what);
        differs.then_some(Difference { what, baseline, candidate })
    });
    profile.into_iter().chain(others).collect()
}

/// Version and build of the system that a report was measured on.
pub(super) fn system(report: &Report) -> String {
    let machine = &report.machine;
    let parts = [machine.os_version.as_deref(), machine.os_build.as_deref()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// What differs and may be compared all the same, but is worth knowing.
pub(super) fn remarks(candidate: &Report, session: &Report, policy: &Policy) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    let mut differ = |what: &str, now: String, before: String| {
        if now != before {
            let (now, before) = (now.escape_debug(), before.escape_debug());
            remarks.push(format!("the {what} is {now}, the baseline's {before}"));
        }
    };
    differ("system", system(candidate), system(session));
    differ("precision", candidate.subject.precision.clone(), session.subject.precision.clone());
    let version = |report: &Report| report.header.tool_version.clone();
    differ("version of anemeter", version(candidate), version(session));
    let (batch, batches) = (candidate.workload.batch, &policy.batch_policy);
    if batch != batches.interactive {
        let purpose = if batches.offline.contains(&batch) { "for offline work only" } else { "not foreseen" };
        remarks.push(format!("batch {batch} is {purpose} on this hardware profile"));
    }
    if crosses_hardware(candidate, session) {
        let (now, before) = (&candidate.header.hardware_profile_key, &session.header.hardware_profile_key);
        remarks.push(format!("CROSS-HARDWARE: speeds of {now} were compared with those of {before}"));
    }
    remarks
}

/// Refuses a report without samples, or with samples that no clock gives.
pub(super) fn usable(report: &Report, which: &str) -> Result<(), GateError> {
    let refuse = |problem: String| GateError::Unusable { which: which.to_owned(), problem };
    let completed: Vec<_> = report.launches.iter().filter(|l| l.outcome == Outcome::Completed).collect();
    if completed.is_empty() {
        return Err(refuse(match report.launches.len() {
            0 => "has no launches".to_owned(),
            count => format!("has no samples: none of its {count} launches completed"),
        }));
    }
    for launch in completed {
        let measured = launch.places();
        if let Some(missing) = report.workload.places().iter().find(|place| !measured.contains(place)) {
            let (missing, index) = (missing.in_words(), launch.index);
            return Err(refuse(format!("has no samples of {missing} in launch {index}")));
        }
        for request in &launch.requests {
            if let Some(what) = impossible(request) {
                let (index, slot) = (launch.index, request.slot);
                return Err(refuse(format!("{what} in launch {index}, request {slot}: not a time")));
            }
        }
        let not_a_time = |one: &&Prediction| !(one.latency_ms.is_finite() && one.latency_ms > 0.0);
        if let Some(Prediction { slot, latency_ms, .. }) = launch.predictions.iter().find(not_a_time) {
            let (index, what) = (launch.index, format!("has a latency of {latency_ms} ms"));
            return Err(refuse(format!("{what} in launch {index}, prediction {slot}: not a time")));
        }
    }
    Ok(())
}

/// A time of a request that no clock gives.
fn impossible(request: &Request) -> Option<String> {
    let bad = |value: f64| !(value.is_finite() && value > 0.0);
    if bad(request.ttft_ms) {
        return Some(format!("has a TTFT of {} ms", request.ttft_ms));
    }
    let step = request.steps_ms.iter().copied().find(|step| !step.is_finite() || *step < 0.0);
    if let Some(step) = step {
        return Some(format!("has a step of {step} ms"));
    }
    // One step may be 0 ms on a coarse clock. If all are, TPS is infinite.
    let nothing = !request.steps_ms.is_empty() && request.steps_ms.iter().sum::<f64>() <= 0.0;
    nothing.then(|| "has steps of 0 ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::policy::testing::policy;
    use super::*;
    use crate::report::testing;
    use anemeter_base::vocabulary::{ComputeUnits, KvForm, RuntimeName};

    #[test]
    fn every_difference_is_named() {
        let baseline = testing::report();
        let mut candidate = baseline.clone();
        assert_eq!(differences(&candidate, &baseline, &policy(), false), []);
        candidate.header.hardware_profile_key = "apple-m2".to_owned();
        candidate.runtime.name = RuntimeName::CoreMl;
        candidate.runtime.compute_units = ComputeUnits::All;
        candidate.workload.batch = 2;
        candidate.subject.kv_form = Some(KvForm::State);
        candidate.workload.seq_lens = vec![128];
        candidate.workload.digest = "xxh3:05".to_owned();
        let error = GateError::NotComparable(differences(&candidate, &baseline, &policy(), false));
        insta::assert_snapshot!(error.to_string().replace("; ", "\n"), @r"
        not comparable with the baseline: hardware profile is `apple-m2`, the baseline's is `linux-test-2c-24gb`
        runtime is `coreml`, the baseline's is `cpu`
        compute units is `all`, the baseline's is `cpu`
        batch is `2`, the baseline's is `1`
        cache form is `state`, the baseline's is `io`
        list of sequence lengths is `128`, the baseline's is `128,512`
        workload is `xxh3:05`, the baseline's is `xxh3:04`
        ");
        let Some(Remedy::Other(text)) = error.remedy() else { panic!("{error}") };
        assert!(text.starts_with("measure with the workload"));
    }

    #[test]
    fn hardware_may_be_crossed_when_asked_for() {
        let baseline = testing::report();
        let mut candidate = baseline.clone();
        candidate.header.hardware_profile_key = "apple-m2".to_owned();
        candidate.runtime.threads = Some(8);
        let refused = differences(&candidate, &baseline, &policy(), false);
        assert_eq!(refused.iter().map(|d| d.what).collect::<Vec<_>>(), [PROFILE, "number of threads"]);
        assert_eq!(differences(&candidate, &baseline, &policy(), true), []);
        candidate.runtime.threads = Some(2);
        let error = GateError::NotComparable(differences(&candidate, &baseline, &policy(), false));
        assert_eq!(error.remedy(), Some(Remedy::AllowCrossHardware));
    }

    #[test]
    fn samples_that_cannot_be_are_refused() {
        let problem = |change: fn(&mut Report)| {
            let mut report = testing::report();
            change(&mut report);
            usable(&report, "baseline").map_err(|error| error.to_string())
        };
        assert_eq!(problem(|_| ()), Ok(()));
        type Change = fn(&mut Report);
        let cases: [(Change, &str); 7] = [
            (|r| r.launches.clear(), "baseline: has no launches"),
            (|r| drop(r.launches.drain(..2)), "baseline: has no samples: none of its 1 launches completed"),
            (|r| r.launches[1].requests.clear(), "baseline: has no samples of seq_len 128 in launch 1"),
            (
                |r| r.launches[0].requests[0].ttft_ms = f64::NAN,
                "baseline: has a TTFT of NaN ms in launch 0, request 2: not a time",
            ),
            (
                |r| r.launches[0].requests[1].ttft_ms = 0.0,
                "baseline: has a TTFT of 0 ms in launch 0, request 3: not a time",
            ),
            (
                |r| r.launches[0].requests[1].steps_ms[0] = f64::INFINITY,
                "baseline: has a step of inf ms in launch 0, request 3: not a time",
            ),
            (
                |r| r.launches[0].requests[1].steps_ms.fill(0.0),
                "baseline: has steps of 0 ms in launch 0, request 3: not a time",
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(problem(change), Err(expected.to_owned()));
        }
    }
}
