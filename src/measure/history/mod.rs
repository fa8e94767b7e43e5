//! Months of reports as series, and where they changed.
//!
//! ```text
//! reports, baselines -> entries -> a series per key, metric and place -> change points -> tables, a page, other tools' formats
//! ```

mod collect;
pub mod formats;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::Metric;
use crate::stats::{Direction, Unit};

pub use collect::{DEFAULT_FALSE_RATE, Entry, history};

/// The format of [`History`] as a document.
pub const SCHEMA: &str = "anemeter.history/1";

/// All series of some reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// Format and version: `anemeter.history/1`.
    pub schema: String,
    /// How often a series without a change has one all the same.
    pub false_rate: f64,
    /// Reports that were read.
    pub reports: usize,
    /// A series per profile, model, workload, metric and place.
    pub series: Vec<Series>,
}

/// The medians of one metric of reports that can be compared with each other, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The hardware profile.
    pub profile: String,
    /// The model and its precision.
    pub model: String,
    /// Runtime, cache form, batch and a digest of what was asked for.
    pub workload: String,
    /// The metric.
    pub metric: Metric,
    /// The sequence length or the case; absent for metrics of whole launches.
    pub place: Option<String>,
    /// What it counts.
    pub unit: Unit,
    /// Which way is better.
    pub direction: Direction,
    /// The medians.
    pub points: Vec<Point>,
    /// Where the mean changed.
    pub changes: Vec<Change>,
}

impl Series {
    /// What it is of, in words.
    pub fn title(&self) -> String {
        let place = self.place.as_ref().map_or_else(String::new, |place| format!(" at {place}"));
        format!("{} p50{place}", self.metric.label())
    }
}

/// One report in a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// When it was measured.
    pub time: String,
    /// The median.
    pub value: f64,
    /// What was measured, with what, where.
    #[serde(flatten)]
    pub circumstances: Circumstances,
}

/// What may be the cause of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Circumstances {
    /// The commit of the folder, with `+` if files differed from it.
    pub commit: Option<String>,
    /// The build of the system, or its version where there is none.
    pub system: Option<String>,
    /// Version of the program that measured.
    pub tool: String,
    /// Digests of the packages.
    pub packages: Vec<String>,
}

impl Circumstances {
    /// What differs from those before, as pairs of words.
    pub fn differences(&self, before: &Circumstances) -> Vec<(&'static str, String, String)> {
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        let pairs = [
            ("commit", known(&before.commit), known(&self.commit)),
            ("system", known(&before.system), known(&self.system)),
            ("anemeter", before.tool.clone(), self.tool.clone()),
            ("packages", before.packages.join(" "), self.packages.join(" ")),
        ];
        pairs.into_iter().filter(|(_, before, after)| before != after).collect()
    }
}

/// A place where a series changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The first point after it.
    pub index: usize,
    /// When that was measured.
    pub time: String,
    /// Mean from the change before to this one.
    pub before: f64,
    /// Mean from this one to the next.
    pub after: f64,
    /// How much larger the mean became, in percent.
    pub change_pct: f64,
    /// Whether that is worse.
    pub is_worse: bool,
    /// What differs between the last report before it and the first after it.
    pub differences: Vec<Difference>,
}

/// Something that differs between two reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// What.
    pub what: String,
    /// In the last report before the change.
    pub before: String,
    /// In the first report after it.
    pub after: String,
}

#[cfg(test)]
mod tests;
