//! A CSV file for Apache Otava: a row per report and series of reports, a column per metric and place.

use std::collections::{BTreeMap, BTreeSet};

use super::at;
use crate::history::{History, Point, Series};
use crate::render::plain;

/// A report of a series, and its values by column.
type Row<'a> = (&'a Point, BTreeMap<String, f64>);

/// The rows. `time` is what Otava calls `time_column`, and every column after `series` is a metric.
pub fn otava_csv(history: &History) -> Result<String, csv::Error> {
    let column = |series: &Series| format!("{}_{}", word(series.metric.label()), word(at(series)));
    let columns: BTreeSet<String> = history.series.iter().map(column).collect();
    let mut rows: BTreeMap<(String, String), Row<'_>> = BTreeMap::new();
    for series in &history.series {
        let name = format!("{}/{}/{}", series.profile, series.model, series.workload);
        for point in &series.points {
            let row = rows.entry((name.clone(), point.time.clone()));
            row.or_insert_with(|| (point, BTreeMap::new())).1.insert(column(series), point.value);
        }
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer
        .write_record(["time", "commit", "series"].into_iter().chain(columns.iter().map(String::as_str)))?;
    for ((name, time), (point, values)) in rows {
        let commit = point.circumstances.commit.clone().unwrap_or_default();
        let cells =
            columns.iter().map(|column| values.get(column).map_or_else(String::new, ToString::to_string));
        let texts = [time, commit, name].map(|text| plain(&text));
        writer.write_record(texts.into_iter().chain(cells))?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8(bytes).expect("only texts and numbers were written"))
}

fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}
