//! Reports: what was measured, on what, how, and every sample; plain data with a version.
//!
//! A report keeps raw samples per launch, so that a gate can judge launches and anyone can compute again. Figures are
//! computed from the samples by [`figures`]; units and directions come from [`Metric`].

mod advice;
mod compression;
mod extend;
mod figure;
mod launch;
mod metric;
mod provenance;
mod residency;
mod soak;
mod speed_limit;

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use advice::advice;
pub use compression::{CompressedWeight, compressed_weights};
pub use figure::{Figure, MixFigure, figures, mix_figures};
pub use launch::{Failure, Launch, Load, Memory, Outcome, Request};
pub use metric::{Metric, Scope};
pub use provenance::{Git, Header, RuntimeUse, Subject, Workload};
pub use residency::{FunctionResidency, KvChoice, LoadRegimes, PredictedResidency, Residency};
pub use soak::{LatencyDrift, LeakVerdict, MemoryTrend, Soak, SoakPoint};
pub use speed_limit::{MeasuredBandwidth, SpeedLimit};

pub use crate::bundle::{Quality, Verification};
use crate::hardware::{Conditions, Machine, Noise};

/// Format and version of reports.
pub const SCHEMA: &str = "anemeter.report/1";

/// A report is never longer than this.
const LONGEST: u64 = 1 << 30;

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
    /// Figures over the production mix of shapes.
    pub mix: Vec<MixFigure>,
    /// How far decoding is from what memory allows, per shape.
    pub speed_limits: Vec<SpeedLimit>,
    /// Bandwidth as the probe measured it in the same run.
    pub bandwidth: Option<MeasuredBandwidth>,
    /// Time that the harness adds to a step, measured with a model that does nothing.
    pub overhead_us_per_step: Option<f64>,
    /// How the form of the key-value cache was chosen, if a probe was asked to.
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
    /// How well the same packages call tools and foretell a text, as `eval` found; absent if it was not run on them.
    #[serde(default)]
    pub quality: Option<Quality>,
    /// How near compressed weights are to what they were; absent if none is compressed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compression: Vec<CompressedWeight>,
}

/// A report that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportError {
    path: PathBuf,
    problem: String,
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for ReportError {}

impl Report {
    /// Reads a report file, or `report.json` in a folder.
    pub fn read(path: &Path) -> Result<Report, ReportError> {
        let file = if path.is_dir() { path.join("report.json") } else { path.to_owned() };
        log::debug!("reads {}", file.display());
        let refuse = |problem: String| ReportError { path: file.clone(), problem };
        let length = std::fs::metadata(&file).map_err(|e| refuse(e.to_string()))?.len();
        if length > LONGEST {
            return Err(refuse(format!("has {length} bytes, a report at most {LONGEST}")));
        }
        let bytes = std::fs::read(&file).map_err(|e| refuse(e.to_string()))?;
        Report::parse(&bytes).map_err(refuse)
    }

    /// Reads a report of this version.
    pub fn parse(bytes: &[u8]) -> Result<Report, String> {
        #[derive(Deserialize)]
        struct Version {
            schema: String,
        }
        let unreadable = |e: serde_json::Error| format!("is not a report: {e}");
        let problem = match serde_json::from_slice::<Report>(bytes) {
            Ok(report) if report.schema == SCHEMA => return Ok(report),
            Ok(_) => String::new(),
            Err(e) => unreadable(e),
        };
        // Another version explains a field that is missing or not known.
        let Version { schema } = serde_json::from_slice(bytes).map_err(unreadable)?;
        match schema == SCHEMA {
            true => Err(problem),
            false => Err(format!("has the schema `{schema}`; this version reads `{SCHEMA}`")),
        }
    }

    /// Drops the samples. Figures stay; nothing can be computed again.
    pub fn forget_samples(&mut self) {
        for launch in &mut self.launches {
            launch.requests = Vec::new();
            launch.stderr = None;
        }
    }

    /// Requests that were measured, with the number of their launch.
    pub fn requests(&self) -> impl Iterator<Item = (usize, &Request)> {
        self.launches.iter().flat_map(|launch| launch.requests.iter().map(|request| (launch.index, request)))
    }

    /// Shapes that were measured, in order.
    pub fn shapes(&self) -> Vec<usize> {
        let mut shapes: Vec<usize> = self.requests().map(|(_, request)| request.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        shapes
    }

    /// A figure by metric and shape.
    pub fn figure(&self, metric: Metric, shape: Option<usize>) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.metric == metric && figure.shape == shape)
    }

    /// Launches that did not complete.
    pub fn failures(&self) -> impl Iterator<Item = (&Launch, &Failure)> {
        self.launches.iter().filter_map(|launch| match &launch.outcome {
            Outcome::Completed => None,
            Outcome::Failed(failure) => Some((launch, failure)),
        })
    }
}

#[cfg(test)]
pub(crate) mod testing;

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
        assert_eq!(
            (read.shapes(), &read.header, &read.subject),
            (vec![128, 512], &report.header, &report.subject)
        );
    }

    #[test]
    fn other_things_are_refused() {
        for (text, expected) in [
            ("{", "is not a report"),
            ("[]", "is not a report"),
            (r#"{"schema": "anemeter.report/9"}"#, "this version reads `anemeter.report/1`"),
            (r#"{"schema": "anemeter.report/1"}"#, "missing field"),
        ] {
            let problem = Report::parse(text.as_bytes()).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(Report::read(folder.path()).unwrap_err().to_string().contains("report.json: "));
    }

    #[test]
    fn failed_launches_are_told_apart() {
        let report = testing::report();
        let failures: Vec<usize> = report.failures().map(|(launch, _)| launch.index).collect();
        assert_eq!(failures, [2]);
    }
}
