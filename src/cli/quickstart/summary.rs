//! A few lines on the result of each step.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::super::units::Bytes;
use super::{Failure, Result};
use crate::bundle::Bundle;
use crate::gate::{self, Verdict};
use crate::harness::records;
use crate::report::Verification;
use crate::report::{Metric, Report};
use crate::vocabulary::RuntimeName;

type Lines = Result<Vec<String>>;

pub(super) fn export(folder: &Path, _: &str) -> Lines {
    let bundle = Bundle::open(folder.join("bundle"))?;
    let manifest = bundle.manifest();
    let lines = manifest.chunks.iter().map(|chunk| {
        let functions: Vec<&str> = chunk.functions.iter().map(|function| &*function.name).collect();
        format!("{}: {}, functions {}", chunk.file.name, Bytes(chunk.file.bytes), functions.join(", "))
    });
    Ok(lines.collect())
}

pub(super) fn lint(_: &Path, printed: &str) -> Lines {
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

pub(super) fn verify(folder: &Path, _: &str) -> Lines {
    let bundle = Bundle::open(folder.join("bundle"))?;
    let Some(found) = records::read::<Verification>(&bundle, RuntimeName::Cpu)? else {
        return Ok(Vec::new());
    };
    let cosine = found.cosine_min.unwrap_or(f64::NAN);
    Ok(vec![format!("passed: at {} positions the cosine is {cosine:.6} at least", found.positions)])
}

pub(super) fn generate(_: &Path, printed: &str) -> Lines {
    let answer: Value = parsed(printed)?;
    let text = answer["sequences"][0]["text"].as_str().unwrap_or_default();
    Ok(vec![format!("…{}", text.replace('\n', " "))])
}

pub(super) fn bench(_: &Path, printed: &str) -> Lines {
    let report: Report = parsed(printed)?;
    let of = |metric: Metric, seq_len: usize| {
        let mut all = report.figures.iter();
        let figure = all.find(|figure| figure.metric == metric && figure.seq_len == Some(seq_len));
        figure.and_then(|figure| figure.summary.percentiles.p50).unwrap_or(f64::NAN)
    };
    let lines = report.workload.seq_lens.iter().map(|&seq_len| {
        let (ttft, tps) = (of(Metric::Ttft, seq_len), of(Metric::Tps, seq_len));
        format!(
            "seq_len {seq_len}: first token after {ttft:.2} ms, then {tps:.0} tokens/s (medians, cpu runtime)"
        )
    });
    Ok(lines.collect())
}

pub(super) fn bless(_: &Path, printed: &str) -> Lines {
    Ok(printed.lines().take(2).map(ToOwned::to_owned).collect())
}

pub(super) fn compare(_: &Path, printed: &str) -> Lines {
    #[derive(Deserialize)]
    struct Compared {
        verdict: Verdict,
    }
    Ok(lines(&parsed::<Compared>(printed)?.verdict))
}

pub(super) fn gate(_: &Path, printed: &str) -> Lines {
    Ok(lines(&parsed(printed)?))
}

/// The outcome, and the checks that made it.
fn lines(verdict: &Verdict) -> Vec<String> {
    let (outcome, deciding) = match verdict.outcome {
        gate::Outcome::Pass => return vec!["pass: nothing is slower than allowed".to_owned()],
        gate::Outcome::Fail => ("FAIL: it is worse than allowed", gate::Status::Fail),
        gate::Outcome::Inconclusive => (
            "inconclusive: this machine is too noisy for an answer in so few launches",
            gate::Status::Inconclusive,
        ),
    };
    let checks = verdict.with(deciding).take(3).map(|check| format!("{}: {}", check.label(), check.reason));
    std::iter::once(outcome.to_owned()).chain(checks).collect()
}

fn parsed<T: serde::de::DeserializeOwned>(printed: &str) -> Result<T> {
    serde_json::from_str(printed).map_err(|e| Failure::bad_input(format!("what a step printed: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{scaled, session};
    use crate::evaluate::{Baseline, GateRules};
    use crate::gate::InterimLook;

    #[test]
    fn the_same_bundle_is_not_called_slower_than_itself() {
        let (rules, sessions) = (GateRules::read(None, None).unwrap(), [session(1)]);
        let baseline = Baseline::Sessions(&sessions);
        let verdict = rules.judge(&scaled(2, 1.5), baseline, InterimLook::only()).unwrap();
        let printed = serde_json::json!({ "verdict": verdict }).to_string();
        let said = compare(Path::new(""), &printed).unwrap();
        assert!(said[0].starts_with("inconclusive: "), "{said:?}");
        assert!(said[1].starts_with("TTFT p50 at 128: the same packages: the machine changed"), "{said:?}");
    }
}
