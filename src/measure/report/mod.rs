//! Reports: what was measured, on what, how, and every sample; plain data with a version.
//!
//! A report keeps raw samples per launch, so that a gate can judge launches and anyone can compute again. Figures are
//! computed from the samples by [`figures`]; units and directions come from [`Metric`].

mod advice;
mod compression;
mod extend;
mod figure;
mod launch;
mod magnitude;
mod metric;
mod place;
mod prediction;
mod provenance;
mod quality_loss;
mod record;
mod residency;
mod soak;
mod speed_limit;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use advice::advice;
pub use compression::CompressedWeight;
pub use extend::ExtendError;
pub use figure::{Figure, MixFigure, figures, mix_figures};
pub use launch::{Failure, Launch, Load, Memory, Outcome, Request};
pub use metric::{Metric, Scope};
pub use place::Place;
pub use prediction::{Case, InputShape, Prediction, Roofline};
pub use provenance::{DepthWorkload, Git, Header, InputRange, InputSource, RuntimeUse, Subject, Workload};
pub use quality_loss::{QualityCheck, QualityFigure, QualityLimits, QualityLoss, TextLoss};
pub use record::{Perplexity, Quality, Record, SeqLenQuality, Verification, VerifiedLengths};
pub use residency::{
    FunctionResidency, KvChoice, LoadRegimes, OffAneOperation, PredictedResidency, Residency,
};
pub use soak::{LatencyDrift, LeakVerdict, MemoryTrend, Soak, SoakPoint};
pub use speed_limit::{MeasuredBandwidth, SpeedLimit};

use anemeter_base::files;
use anemeter_base::hardware::{Conditions, Machine, Noise};
use anemeter_base::vocabulary::WorkloadKind;

/// Format and version of reports.
pub const SCHEMA: &str = "anemeter.report/1";

/// Everything that is known of one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Format and version: `anemeter.report/1`.
    pub schema: String,
    /// When, by what and where in one glance.
    pub header: Header,
    /// What was measured.
    pub subject: Subject,
    /// What executed it.
    pub runtime: RuntimeUse,
    /// What it was measured on.
    pub machine: Machine,
    /// The state of the machine before the first launch.
    pub conditions_at_start: Conditions,
    /// The state of the machine after the last launch.
    pub conditions_at_end: Conditions,
    /// What was likely to disturb the measurement.
    pub noise: Vec<Noise>,
    /// What was asked for.
    pub workload: Workload,
    /// Every launch in order, failed ones too.
    pub launches: Vec<Launch>,
    /// Figures over all launches.
    pub figures: Vec<Figure>,
    /// Figures over the production mix of sequence lengths.
    pub mix: Vec<MixFigure>,
    /// How far decoding is from what memory allows, per sequence length.
    pub speed_limits: Vec<SpeedLimit>,
    /// How far predictions are from what the machine allows, per case of the workload `predict`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rooflines: Vec<Roofline>,
    /// Bandwidth as the probe measured it in the same run.
    pub bandwidth: Option<MeasuredBandwidth>,
    /// Time that the harness adds to a step, measured with a model that does nothing.
    pub overhead_us_per_step: Option<f64>,
    /// How the form of the KV cache was chosen, if a probe was asked to.
    #[serde(default)]
    pub kv_choice: Option<KvChoice>,
    /// What making the model ready took in each situation, where the runtime compiles.
    #[serde(default)]
    pub load_regimes: Option<LoadRegimes>,
    /// Where operations ran; absent if the runtime cannot tell or does not use the Neural Engine.
    pub residency: Option<Residency>,
    /// Why residency is absent, or what the figure is worth.
    pub residency_note: String,
    /// Where static rules expect operations to run. A prediction, never a measurement.
    pub predicted_residency: Vec<PredictedResidency>,
    /// The long run, if one was asked for.
    pub soak: Option<Soak>,
    /// What `verify` found about the same packages; absent if it was not run on them.
    #[serde(default)]
    pub verification: Option<Verification>,
    /// How well the same packages call tools and predict a text, as `eval` found; absent if it was not run on them.
    #[serde(default)]
    pub quality: Option<Quality>,
    /// How near compressed weights are to what they were; absent if none is compressed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compression: Vec<CompressedWeight>,
}

/// A report file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct ReportError {
    path: PathBuf,
    problem: String,
}

/// Why bytes are no document of this version.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// They are something else.
    #[error("is not a {what}: {error}")]
    NotOne {
        /// What was expected.
        what: &'static str,
        /// Why it is not.
        error: serde_json::Error,
    },
    /// They are of another version.
    #[error("has the schema `{found}`; this version reads `{read}`")]
    OtherSchema {
        /// The schema of the document.
        found: String,
        /// The schema of this version.
        read: &'static str,
    },
    /// A number in them is larger than anything that is measured.
    #[error("holds the number {0:e}, and nothing that is measured is above {MOST:e}", MOST = magnitude::MOST)]
    BeyondMeasure(f64),
}

impl Report {
    /// Bytes of the longest report that is read.
    pub const LONGEST: u64 = 256 << 20;

    /// Reads a report file, or `report.json` in a folder.
    pub fn read(path: &Path) -> Result<Report, ReportError> {
        let file = if path.is_dir() { path.join("report.json") } else { path.to_owned() };
        log::debug!("reads {}", file.display());
        let refuse = |problem: String| ReportError { path: file.clone(), problem };
        let bytes = files::read(&file, Report::LONGEST).map_err(|e| refuse(e.to_string()))?;
        Report::parse(&bytes).map_err(|e| refuse(e.to_string()))
    }

    /// Reads a report of this version.
    pub fn parse(bytes: &[u8]) -> Result<Report, ParseError> {
        #[derive(Deserialize)]
        struct Version {
            schema: String,
        }
        let unreadable = |error| ParseError::NotOne { what: "report", error };
        let parsed = match serde_json::from_slice::<Report>(bytes) {
            Ok(report) if report.schema == SCHEMA => {
                return match magnitude::beyond_measure(&report) {
                    Some(number) => Err(ParseError::BeyondMeasure(number)),
                    None => Ok(report),
                };
            }
            parsed => parsed,
        };
        // Another version explains a field that is missing or not known.
        let Version { schema } = serde_json::from_slice(bytes).map_err(unreadable)?;
        match schema == SCHEMA {
            true => parsed.map_err(unreadable),
            false => Err(ParseError::OtherSchema { found: schema, read: SCHEMA }),
        }
    }

    /// Drops the samples. Figures stay; nothing can be computed again.
    pub fn forget_samples(&mut self) {
        for launch in &mut self.launches {
            launch.requests = Vec::new();
            launch.predictions = Vec::new();
            launch.stderr = None;
        }
    }

    /// Requests that were measured, with the number of their launch.
    pub fn requests(&self) -> impl Iterator<Item = (usize, &Request)> {
        self.launches.iter().flat_map(|launch| launch.requests.iter().map(|request| (launch.index, request)))
    }

    /// Sequence lengths that were measured, in order.
    pub fn seq_lens(&self) -> Vec<usize> {
        let mut seq_lens: Vec<usize> = self.requests().map(|(_, request)| request.seq_len).collect();
        seq_lens.sort_unstable();
        seq_lens.dedup();
        seq_lens
    }

    /// Where something was measured: sequence lengths in order, or cases in theirs.
    pub fn places(&self) -> Vec<Place> {
        figure::places(self.launches.iter())
    }

    /// Whether it measured predictions of functions, and not text that was generated.
    pub fn is_of_predictions(&self) -> bool {
        self.workload.kind == WorkloadKind::Predict
    }

    /// A figure by metric and place.
    pub fn figure_at(&self, metric: Metric, place: Option<&Place>) -> Option<&Figure> {
        let is_there = |figure: &&Figure| figure.metric == metric && figure.place().as_ref() == place;
        self.figures.iter().find(is_there)
    }

    /// A figure by metric and sequence length.
    pub fn figure(&self, metric: Metric, seq_len: Option<usize>) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.metric == metric && figure.seq_len == seq_len)
    }

    /// Whether another report is of the same session, though it may have had launches added. Times may differ by what
    /// reading a number loses.
    pub fn is_of_session(&self, other: &Report) -> bool {
        let near = |(x, y): (f64, f64)| (x - y).abs() <= 1e-9 * x.abs();
        let times = |report: &Report| -> Vec<f64> {
            let requests = report.requests().map(|(_, request)| request.ttft_ms);
            let predictions = report.launches.iter().flat_map(|launch| &launch.predictions);
            requests.chain(predictions.map(|one| one.latency_ms)).collect()
        };
        let same_start = self.header.created == other.header.created;
        same_start && times(self).into_iter().zip(times(other)).all(near)
    }

    /// What `verify` found about the very packages of the report.
    pub fn verified(&self) -> Option<&Verification> {
        self.verification.as_ref().filter(|found| found.package_digests == self.subject.package_digests)
    }

    /// What the packages lose against their checkpoint, as `verify` found.
    pub fn quality_loss(&self) -> Option<&QualityLoss> {
        self.verified()?.quality.as_ref()
    }

    /// Perplexity of the packages on a text, as `eval` or `verify` found.
    pub fn perplexity(&self) -> Option<f64> {
        self.scored_text().map(|(perplexity, _)| perplexity)
    }

    /// Digest of the text that [`Report::perplexity`] is of.
    pub fn text_digest(&self) -> Option<&str> {
        self.scored_text().map(|(_, digest)| digest)
    }

    fn scored_text(&self) -> Option<(f64, &str)> {
        let is_about = |found: &&Quality| found.package_digests == self.subject.package_digests;
        let evaluated = self.quality.as_ref().filter(is_about).and_then(|found| found.perplexity.as_ref());
        let verified = || self.quality_loss()?.text.as_ref().map(|text| (text.packages, &*text.text_digest));
        evaluated.map(|found| (found.perplexity, &*found.text_digest)).or_else(verified)
    }

    /// Launches that did not complete.
    pub fn failures(&self) -> impl Iterator<Item = (&Launch, &Failure)> {
        self.launches.iter().filter_map(|launch| match &launch.outcome {
            Outcome::Completed => None,
            Outcome::Failed(failure) => Some((launch, failure)),
        })
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "it serves tests only")]
pub mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_a_round_trip() {
        let report = testing::report();
        let text = serde_json::to_vec(&report).unwrap();
        let read = Report::parse(&text).unwrap();
        assert!(read.launches == report.launches, "raw samples are read exactly");
        assert!(figures(&read.launches) == report.figures, "so figures can be computed again");
        assert_eq!((&read.header, &read.subject), (&report.header, &report.subject));
        assert_eq!(read.seq_lens(), [128, 512]);
    }

    #[test]
    fn other_things_are_refused() {
        for (text, expected) in [
            ("{", "is not a report"),
            ("[]", "is not a report"),
            (r#"{"schema": "anemeter.report/9"}"#, "this version reads `anemeter.report/1`"),
            (r#"{"schema": "anemeter.report/1"}"#, "missing field"),
        ] {
            let problem = Report::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(Report::read(folder.path()).unwrap_err().to_string().contains("report.json: "));
    }

    #[test]
    fn a_session_is_told_by_its_start_and_its_samples() {
        let report = testing::report();
        let mut extended = report.clone();
        extended.launches.push(testing::launch(3, 1.1));
        assert!(report.is_of_session(&extended) && extended.is_of_session(&report));
        let mut other_day = report.clone();
        other_day.header.created = "2026-05-01T12:00:00Z".to_owned();
        let mut other_times = report.clone();
        other_times.launches[0].requests[0].ttft_ms *= 1.01;
        assert!(!report.is_of_session(&other_day) && !report.is_of_session(&other_times));
    }

    #[test]
    fn failed_launches_are_told_apart() {
        let report = testing::report();
        let failures: Vec<usize> = report.failures().map(|(launch, _)| launch.index).collect();
        assert_eq!(failures, [2]);
    }
}
