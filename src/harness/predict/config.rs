//! The section `predict` of a workload: which functions, at which shapes, with which inputs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use anemeter_base::vocabulary::StateUse;
use anemeter_measure::report::{Case, InputRange, InputShape, InputSource, Workload};

/// Predictions of each case and launch, unless asked for otherwise. Ten launches have 500, which is enough for a p99.
const PREDICTIONS: usize = 50;

/// What the workload `predict` does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PredictConfig {
    /// Measured predictions per case and launch.
    pub predictions_per_case: usize,
    /// Functions to predict; all if none are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<Vec<String>>,
    /// Shapes of inputs, such as `1x3x224x224`, in place of those that are declared; those of several inputs pair by index.
    pub shapes: BTreeMap<String, Vec<ShapeText>>,
    /// A safetensors file with inputs: one sample by the names of the inputs, or several as `name.0`, `name.1` and so on. Without
    /// one they are made up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<PathBuf>,
    /// Integers that are made up for an input, such as `0..30000`, of which the end is not among them.
    pub ranges: BTreeMap<String, RangeText>,
    /// What a prediction finds in the states.
    pub states: StateUse,
    /// The cases of a report that is measured again, in place of those that functions and shapes give.
    #[serde(skip)]
    pub(crate) reported: Vec<ReportedCase>,
}

/// A case as a report states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedCase {
    package: String,
    function: String,
    shapes: Vec<InputShape>,
}

impl Default for PredictConfig {
    fn default() -> PredictConfig {
        PredictConfig {
            predictions_per_case: PREDICTIONS,
            functions: None,
            shapes: BTreeMap::new(),
            inputs: None,
            ranges: BTreeMap::new(),
            states: StateUse::Fresh,
            reported: Vec::new(),
        }
    }
}

impl PredictConfig {
    /// Whether nothing was asked for, so that other workloads leave it out.
    pub(crate) fn is_default(&self) -> bool {
        *self == PredictConfig::default()
    }

    /// The configuration that gave a workload, as far as a report states it; where a file of inputs is, `config` may know
    /// better than the report.
    pub fn of_workload(workload: &Workload, config: &PredictConfig) -> PredictConfig {
        let mut functions: Vec<String> = Vec::new();
        for case in &workload.cases {
            if !functions.contains(&case.function) {
                functions.push(case.function.clone());
            }
        }
        let reported = |case: &Case| ReportedCase {
            package: case.package.clone(),
            function: case.function.clone(),
            shapes: case.shapes.clone(),
        };
        let mut made = PredictConfig {
            predictions_per_case: workload.requests_per_seq_len,
            functions: Some(functions),
            states: workload.states.unwrap_or_default(),
            reported: workload.cases.iter().map(reported).collect(),
            ..PredictConfig::default()
        };
        match &workload.inputs {
            Some(InputSource::File { path, .. }) => {
                made.inputs = config.inputs.clone().or_else(|| Some(PathBuf::from(path)));
                // The samples decide the shapes.
                made.reported.clear();
            }
            Some(InputSource::MadeUp { ranges, .. }) => {
                let range = |of: &InputRange| (of.input.clone(), RangeText { low: of.low, end: of.end });
                made.ranges = ranges.iter().map(range).collect();
            }
            None => {}
        }
        made
    }

    /// The shapes of a function of a package in the cases of the report, each with one sample.
    pub(crate) fn reported_shapes(&self, package: &str, function: &str) -> Vec<(Vec<InputShape>, usize)> {
        let of_it = self.reported.iter().filter(|case| case.package == package && case.function == function);
        of_it.map(|case| (case.shapes.clone(), 1)).collect()
    }

    pub(crate) fn problem(&self) -> Option<String> {
        let count = self.predictions_per_case;
        if !(1..=1_000_000).contains(&count) {
            return Some(format!("`predict.predictions_per_case` is {count}, expected 1 to 1000000"));
        }
        let empty = self.functions.as_ref().is_some_and(Vec::is_empty);
        let no_shape = self.shapes.iter().find(|(_, shapes)| shapes.is_empty());
        match no_shape {
            Some((name, _)) => Some(format!("`predict.shapes` has no shape for `{}`", name.escape_debug())),
            None => empty.then(|| "`predict.functions` is empty".to_owned()),
        }
    }
}

/// A shape as people write it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct ShapeText(pub Vec<u64>);

impl FromStr for ShapeText {
    type Err = String;

    fn from_str(text: &str) -> Result<ShapeText, String> {
        let sizes = text.split('x').map(str::parse);
        let sizes: Vec<u64> = sizes
            .collect::<Result<_, _>>()
            .map_err(|_| format!("`{}` is not a shape such as 1x3x224x224", text.escape_debug()))?;
        if sizes.contains(&0) {
            return Err(format!("`{text}` has a dimension of 0: there would be nothing to predict with"));
        }
        Ok(ShapeText(sizes))
    }
}

impl fmt::Display for ShapeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&sizes.join("x"))
    }
}

/// A range of integers as people write it; the end is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct RangeText {
    /// The smallest.
    pub low: i32,
    /// The first beyond the largest.
    pub end: i32,
}

impl FromStr for RangeText {
    type Err = String;

    fn from_str(text: &str) -> Result<RangeText, String> {
        let ends = text.split_once("..").and_then(|(low, end)| Some((low.parse().ok()?, end.parse().ok()?)));
        match ends {
            Some((low, end)) if low < end => Ok(RangeText { low, end }),
            _ => Err(format!("`{}` is not a range of int32 such as 0..30000", text.escape_debug())),
        }
    }
}

impl fmt::Display for RangeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.low, self.end)
    }
}

impl TryFrom<String> for ShapeText {
    type Error = String;

    fn try_from(text: String) -> Result<ShapeText, String> {
        text.parse()
    }
}

impl From<ShapeText> for String {
    fn from(shape: ShapeText) -> String {
        shape.to_string()
    }
}

impl TryFrom<String> for RangeText {
    type Error = String;

    fn try_from(text: String) -> Result<RangeText, String> {
        text.parse()
    }
}

impl From<RangeText> for String {
    fn from(range: RangeText) -> String {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_ranges_are_written_as_they_are_read() {
        for shape in ["1x3x224x224", "7"] {
            assert_eq!(shape.parse::<ShapeText>().unwrap().to_string(), shape);
        }
        assert_eq!("-5..3".parse::<RangeText>().unwrap().to_string(), "-5..3");
        for wrong in ["", "1x", "1x0x3", "axb", "1,3", "-1x2", "99999999999999999999"] {
            assert!(wrong.parse::<ShapeText>().is_err(), "{wrong}");
        }
        for wrong in ["", "3", "5..5", "9..1", "0..3000000000", "a..b", "0...3"] {
            assert!(wrong.parse::<RangeText>().is_err(), "{wrong}");
        }
    }
}
