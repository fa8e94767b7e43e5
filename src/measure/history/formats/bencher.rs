//! Bencher Metric Format: the newest point of each series, as `bencher run --adapter json` takes it.

use serde_json::{Map, Value, json};

use super::full_name;
use crate::history::History;

/// A JSON document: a benchmark per place, a measure per metric.
pub fn bencher(history: &History) -> Value {
    let mut benchmarks = Map::new();
    for series in &history.series {
        let Some(newest) = series.points.last() else { continue };
        let benchmark = benchmarks.entry(full_name(series)).or_insert_with(|| json!({}));
        let measure = series.metric.label().replace(' ', "-").to_lowercase();
        benchmark[measure] = json!({"value": newest.value});
    }
    Value::Object(benchmarks)
}
