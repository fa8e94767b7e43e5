//! A few lines on what each step found.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::super::units::Bytes;
use super::Failure;
use crate::bundle::{Bundle, Verification};
use crate::gate::{self, Verdict};
use crate::report::{Metric, Report};

type Told = Result<Vec<String>, Failure>;

pub(super) fn export(folder: &Path, _: &str) -> Told {
    let bundle = Bundle::open(folder.join("bundle"))?;
    let manifest = bundle.manifest();
    let told = manifest.chunks.iter().map(|chunk| {
        let functions: Vec<&str> = chunk.functions.iter().map(|function| &*function.name).collect();
        format!("{}: {}, functions {}", chunk.file.name, Bytes(chunk.file.bytes), functions.join(", "))
    });
    Ok(told.collect())
}

pub(super) fn lint(_: &Path, printed: &str) -> Told {
    let report: Value = parsed(printed)?;
    let findings = report["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let rules = |severity: &str| {
        let found = findings.iter().filter(|finding| finding["severity"] == severity);
        let rules: BTreeSet<&str> = found.filter_map(|finding| finding["rule"].as_str()).collect();
        rules.into_iter().collect::<Vec<_>>()
    };
    let (errors, warnings) = (rules("error"), rules("warning"));
    let explain = warnings.first().map(|rule| format!("`anemeter lint --explain {rule}` says why"));
    let count =
        format!("{} rules broken, {} that warn: {}", errors.len(), warnings.len(), warnings.join(", "));
    Ok([count].into_iter().chain(explain).collect())
}

pub(super) fn verify(folder: &Path, _: &str) -> Told {
    let bundle = Bundle::open(folder.join("bundle"))?;
    let Some(found) = bundle.record::<Verification>()? else { return Ok(Vec::new()) };
    let cosine = found.cosine_min.unwrap_or(f64::NAN);
    Ok(vec![format!("passed: at {} positions the cosine is {cosine:.6} at least", found.positions)])
}

pub(super) fn generate(_: &Path, printed: &str) -> Told {
    let answer: Value = parsed(printed)?;
    let text = answer["sequences"][0]["text"].as_str().unwrap_or_default();
    Ok(vec![format!("…{}", text.replace('\n', " "))])
}

pub(super) fn bench(_: &Path, printed: &str) -> Told {
    let report: Report = parsed(printed)?;
    let of = |metric: Metric, shape: usize| {
        let mut all = report.figures.iter();
        let figure = all.find(|figure| figure.metric == metric && figure.shape == Some(shape));
        figure.and_then(|figure| figure.summary.percentiles.p50).unwrap_or(f64::NAN)
    };
    let told = report.workload.shapes.iter().map(|&shape| {
        let (ttft, tps) = (of(Metric::Ttft, shape), of(Metric::Tps, shape));
        format!(
            "shape {shape}: first token after {ttft:.2} ms, then {tps:.0} tokens/s (medians, cpu runtime)"
        )
    });
    Ok(told.collect())
}

pub(super) fn bless(_: &Path, printed: &str) -> Told {
    Ok(printed.lines().take(2).map(ToOwned::to_owned).collect())
}

pub(super) fn gate(_: &Path, printed: &str) -> Told {
    let verdict: Verdict = parsed(printed)?;
    let word = match verdict.outcome {
        gate::Outcome::Pass => "pass: nothing is slower than allowed",
        gate::Outcome::Fail => "FAIL",
        gate::Outcome::Inconclusive => {
            "inconclusive: this machine is too noisy for an answer in so few launches"
        }
    };
    let mut told = vec![word.to_owned()];
    let failed = verdict.checks.iter().filter(|check| check.status == gate::Status::Fail);
    told.extend(failed.take(3).map(|check| format!("{}: {}", check.label(), check.reason)));
    Ok(told)
}

fn parsed<T: serde::de::DeserializeOwned>(printed: &str) -> Result<T, Failure> {
    serde_json::from_str(printed).map_err(|e| Failure::bad_input(format!("what a step printed: {e}")))
}
