//! github-action-benchmark: the newest point of each series. One file has metrics of one direction only.

use serde_json::{Value, json};

use super::full_name;
use crate::history::History;
use crate::stats::Direction;

/// A JSON document for the tool `customBiggerIsBetter`, or `customSmallerIsBetter`.
pub fn benchmark_action(history: &History, bigger_is_better: bool) -> Value {
    let wanted = if bigger_is_better { Direction::HigherIsBetter } else { Direction::LowerIsBetter };
    let entries = history.series.iter().filter(|series| series.direction == wanted).filter_map(|series| {
        let newest = series.points.last()?;
        let name = format!("{}/{}", full_name(series), series.metric.label());
        Some(json!({"name": name, "unit": series.unit, "value": newest.value}))
    });
    entries.collect()
}
