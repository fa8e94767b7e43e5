//! The verdict: plain data with a version.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::{ParseError, Place, Report};
use crate::stats::Unit;
use crate::words::{self, SIZE, SPEED, Words, configured};

/// Format and version of verdicts.
pub const SCHEMA: &str = "anemeter.verdict/1";

/// What a gate found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Format and version: `anemeter.verdict/1`.
    pub schema: String,
    /// The whole: fails if a check fails, is inconclusive if one is and none fails.
    pub outcome: Outcome,
    /// How launches were compared.
    pub rule: Rule,
    /// Whether speeds of different hardware profiles were compared. Such a verdict blesses nothing.
    pub cross_hardware: bool,
    /// Whether both sides are the very same packages. Then a difference is not one of the model.
    #[serde(default)]
    pub same_packages: bool,
    /// The report that was judged.
    pub candidate: Side,
    /// What it was compared with.
    pub baseline: Side,
    /// How often the speed checks together fail though nothing has changed, at most.
    pub false_alarm: f64,
    /// Every check.
    pub checks: Vec<Check>,
    /// What to know besides.
    pub warnings: Vec<String>,
}

/// The whole of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing is worse than allowed.
    Pass,
    /// Something is worse than allowed.
    Fail,
    /// It cannot be told.
    Inconclusive,
}

/// How launches were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// With those of blessed sessions.
    Stored,
    /// With interleaved ones of the same session.
    Paired,
}

/// One of the two things that were compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// The model's name.
    pub name: String,
    /// When its newest session began.
    pub created: String,
    /// Its hardware profile.
    pub hardware_profile_key: String,
    /// What executed it.
    pub runtime: String,
    /// Digests of its packages.
    pub package_digests: Vec<String>,
    /// Number of sessions.
    pub sessions: usize,
    /// Completed launches of all sessions.
    pub launches: usize,
}

/// Something that was judged, at one sequence length or over all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What is checked.
    pub measure: Measure,
    /// Which statistic of it, where there are several.
    pub statistic: Option<Statistic>,
    /// At which sequence length; absent if over all.
    pub seq_len: Option<usize>,
    /// At which case of the workload `predict`; absent if over all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// Result of the check.
    pub status: Status,
    /// Why, in a sentence.
    pub reason: String,
    /// Launches of the candidate that would likely settle it; absent if launches alone would not.
    pub more_launches: Option<usize>,
    /// Whether it cannot be told because the machine changed or was not steady.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub machine: bool,
    /// The change, where there is something to compare with.
    pub effect: Option<Effect>,
    /// The limit that it is held against.
    pub limit: Option<Limit>,
    /// How often such a check fails though nothing has changed, at most; 0 for what is exact.
    pub false_alarm: Option<f64>,
    /// How often no change at all would look like this, corrected for the number of checks beside it.
    pub probability: Option<f64>,
}

/// What came out of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is as good as it should be.
    Pass,
    /// It is worse than allowed.
    Fail,
    /// It cannot be told.
    Inconclusive,
    /// It was not judged.
    NotGated,
}

/// What a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Time to the first token.
    Ttft,
    /// Tokens per second.
    Tps,
    /// Time of one prediction of a function.
    Latency,
    /// Making packages ready to run.
    Load,
    /// The most memory that a process had.
    MemoryPeak,
    /// Bytes of all packages.
    PackageSize,
    /// Bytes of keys and values per token.
    KvBytes,
    /// The share of the work on the Neural Engine.
    Residency,
    /// What is left of the baseline's residency.
    ResidencyDrop,
    /// Whether the packages compute what their weights say.
    Verification,
    /// The lowest cosine against what their weights say.
    Cosine,
    /// Outputs that are not numbers.
    NotFinite,
    /// Mean KL divergence from the checkpoint.
    Kl,
    /// Share of the checkpoint's likeliest tokens.
    Top1,
    /// Share of the checkpoint's five likeliest tokens.
    Top5,
    /// Increase of perplexity against the checkpoint.
    Perplexity,
    /// The largest difference of F1 between sequence lengths.
    F1Drift,
    /// Tokens before the first action, at p95.
    Ttfa,
    /// Launches that did not complete.
    FailedLaunches,
    /// Memory that grows over a long run.
    Leak,
    /// A waiver whose time is over.
    Waiver,
}

/// Which statistic of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The median.
    P50,
    /// The slow tail at one sequence length.
    P95,
    /// The slow tail over all sequence lengths together.
    PooledTail,
}

/// A change from the baseline to the candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// By how many per cent it is worse; negative if it is better.
    pub regression_pct: f64,
    /// A range that covers the true regression.
    pub interval_pct: Option<Range>,
    /// The baseline's value over all of its samples, as it is shown everywhere.
    pub baseline: Option<f64>,
    /// The candidate's value over all of its samples. The regression is not their quotient: it is estimated over
    /// launches, without those that lie far out.
    pub candidate: Option<f64>,
    /// The candidate's value less the baseline's, over the same range.
    pub interval_units: Option<Range>,
    /// What the values count; absent for plain numbers.
    pub unit: Option<Unit>,
}

/// A range with its confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The smaller end.
    pub low: f64,
    /// The larger end.
    pub high: f64,
    /// How often such a range covers the true value.
    pub confidence: f64,
}

/// What a check allows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// At most so many per cent worse than the baseline.
    RegressionPct(f64),
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Outcome {
    /// The whole of some checks. Nothing that was judged is nothing that passed.
    pub fn of(checks: &[Check]) -> Outcome {
        let any = |status: Status| checks.iter().any(|check| check.status == status);
        match () {
            () if any(Status::Fail) => Outcome::Fail,
            () if any(Status::Inconclusive) || !any(Status::Pass) => Outcome::Inconclusive,
            () => Outcome::Pass,
        }
    }

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Fail => "FAIL",
            Outcome::Inconclusive => "inconclusive",
        }
    }
}

impl Verdict {
    /// Reads a verdict as `anemeter gate --json` writes it.
    pub fn parse(bytes: &[u8]) -> Result<Verdict, ParseError> {
        let verdict: Verdict =
            serde_json::from_slice(bytes).map_err(|error| ParseError::NotOne { what: "verdict", error })?;
        match verdict.schema == SCHEMA {
            true => Ok(verdict),
            false => Err(ParseError::OtherSchema { found: verdict.schema, read: SCHEMA }),
        }
    }

    /// Whether it is about a report.
    pub fn judges(&self, report: &Report) -> bool {
        let Side { created, package_digests, .. } = &self.candidate;
        *created == report.header.created && *package_digests == report.subject.package_digests
    }

    /// Checks with one status.
    pub fn with(&self, status: Status) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.status == status)
    }

    /// Whether something cannot be told because of the machine.
    pub fn is_open_by_machine(&self) -> bool {
        self.with(Status::Inconclusive).any(|check| check.machine)
    }

    /// Launches that would likely settle every inconclusive check; `None` if there is none, or if launches alone
    /// would not do.
    pub fn more_launches(&self) -> Option<usize> {
        let needed: Option<Vec<usize>> =
            self.with(Status::Inconclusive).map(|check| check.more_launches).collect();
        needed?.into_iter().max()
    }
}

impl Check {
    /// A check of something exact.
    pub(super) fn exact(measure: Measure, status: Status, reason: impl Into<String>) -> Check {
        Check {
            measure,
            statistic: None,
            seq_len: None,
            case: None,
            status,
            reason: reason.into(),
            more_launches: None,
            machine: false,
            effect: None,
            limit: None,
            false_alarm: Some(0.0),
            probability: None,
        }
    }

    /// What it is about, for people, such as `TTFT p95 at 512`.
    pub fn label(&self) -> String {
        let statistic = self.statistic.map(|s| format!(" {}", s.label())).unwrap_or_default();
        let place = self.place().map(|place| format!(" at {place}")).unwrap_or_default();
        format!("{}{statistic}{place}", self.measure.label())
    }

    /// What it is about, for programs, such as `ttft.p95.512`.
    pub fn id(&self) -> String {
        let statistic = self.statistic.map(|s| format!(".{}", s.id())).unwrap_or_default();
        let place = self.place().map(|place| format!(".{place}")).unwrap_or_default();
        format!("{}{statistic}{place}", self.measure.id())
    }

    /// Where it holds; `None` for what is judged once per report.
    pub fn place(&self) -> Option<Place> {
        Place::stated(self.seq_len, self.case.as_ref())
    }
}

impl Status {
    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::Fail => "FAIL",
            Status::Inconclusive => "inconclusive",
            Status::NotGated => "not gated",
        }
    }
}

impl Measure {
    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Measure::Ttft => "TTFT",
            Measure::Tps => "TPS",
            Measure::Latency => "latency",
            Measure::Load => "load time",
            Measure::MemoryPeak => "memory peak",
            Measure::PackageSize => "package size",
            Measure::KvBytes => "KV bytes per token",
            Measure::Residency => "ANE residency",
            Measure::ResidencyDrop => "ANE residency drop",
            Measure::Verification => "verification",
            Measure::Cosine => "cosine",
            // Infinities count too; NaN is the word that people search for.
            Measure::NotFinite => "NaN outputs",
            Measure::Kl => "KL divergence",
            Measure::Top1 => "top-1",
            Measure::Top5 => "top-5",
            Measure::Perplexity => "perplexity",
            Measure::F1Drift => "F1 drift",
            Measure::Ttfa => "TTFA p95",
            Measure::FailedLaunches => "failed launches",
            Measure::Leak => "memory leak",
            Measure::Waiver => "expired waiver",
        }
    }

    /// A change of it in words, such as `8.1 % slower`; positive is worse.
    pub fn change(self, worse_pct: f64) -> String {
        words::change(worse_pct, self.words())
    }

    pub(crate) fn words(self) -> Words {
        match self {
            Measure::MemoryPeak | Measure::PackageSize | Measure::KvBytes => SIZE,
            Measure::ResidencyDrop => ["less", "more"],
            _ => SPEED,
        }
    }

    /// Its name in files.
    pub fn id(self) -> &'static str {
        match self {
            Measure::Ttft => "ttft",
            Measure::Tps => "tps",
            Measure::Latency => "latency",
            Measure::Load => "load",
            Measure::MemoryPeak => "memory_peak",
            Measure::PackageSize => "package_size",
            Measure::KvBytes => "kv_bytes",
            Measure::Residency => "residency",
            Measure::ResidencyDrop => "residency_drop",
            Measure::Verification => "verification",
            Measure::Cosine => "cosine",
            Measure::NotFinite => "not_finite",
            Measure::Kl => "kl",
            Measure::Top1 => "top1",
            Measure::Top5 => "top5",
            Measure::Perplexity => "perplexity",
            Measure::F1Drift => "f1_drift",
            Measure::Ttfa => "ttfa",
            Measure::FailedLaunches => "failed_launches",
            Measure::Leak => "leak",
            Measure::Waiver => "waiver",
        }
    }
}

impl Statistic {
    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Statistic::P50 => "p50",
            Statistic::P95 => "p95",
            Statistic::PooledTail => "pooled tail",
        }
    }

    /// Its name in files.
    pub fn id(self) -> &'static str {
        match self {
            Statistic::P50 => "p50",
            Statistic::P95 => "p95",
            Statistic::PooledTail => "pooled_tail",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::RegressionPct(pct) => write!(f, "{} % worse", configured(*pct)),
            Limit::AtLeast(value) => write!(f, "at least {}", configured(*value)),
            Limit::AtMost(value) => write!(f, "at most {}", configured(*value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Status, more_launches: Option<usize>) -> Check {
        Check { more_launches, ..Check::exact(Measure::Ttft, status, "because") }
    }

    #[test]
    fn the_whole_follows_from_the_parts() {
        use Status::*;
        let of = |parts: &[Status]| {
            Outcome::of(&parts.iter().map(|status| check(*status, None)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[Pass, NotGated]), Outcome::Pass);
        assert_eq!(of(&[Pass, Inconclusive]), Outcome::Inconclusive);
        assert_eq!(of(&[Pass, Inconclusive, Fail]), Outcome::Fail);
        assert_eq!(of(&[NotGated]), Outcome::Inconclusive);
        assert_eq!(of(&[]), Outcome::Inconclusive);
    }

    #[test]
    fn names_in_files_are_those_of_json() {
        for measure in [Measure::Ttft, Measure::MemoryPeak, Measure::ResidencyDrop, Measure::FailedLaunches] {
            assert_eq!(serde_json::to_value(measure).unwrap(), measure.id());
        }
        for statistic in [Statistic::P50, Statistic::P95, Statistic::PooledTail] {
            assert_eq!(serde_json::to_value(statistic).unwrap(), statistic.id());
        }
        let tail = Check { statistic: Some(Statistic::P95), seq_len: Some(512), ..check(Status::Pass, None) };
        assert_eq!((tail.id().as_str(), tail.label().as_str()), ("ttft.p95.512", "TTFT p95 at 512"));
    }
}
