//! From reports to series with their changes.

use std::collections::BTreeMap;

use super::{Change, Circumstances, Difference, History, Point, SCHEMA, Series};
use crate::baseline::Key;
use crate::report::{Figure, Metric, Report};
use crate::stats::{Direction, change_points};

/// How often a series without a change has one, unless told otherwise.
pub const DEFAULT_FALSE_RATE: f64 = 0.01;

/// Metrics that make series: those that gates judge, and those that explain them.
const METRICS: &[Metric] = &[
    Metric::Ttft,
    Metric::Tps,
    Metric::PrefillTps,
    Metric::Latency,
    Metric::Load,
    Metric::MemoryPeak,
    Metric::EnergyPerToken,
];

/// What is kept of a report, which is far less than the report.
#[derive(Debug, Clone)]
pub struct Entry {
    key: Key,
    time: String,
    circumstances: Circumstances,
    figures: Vec<Figure>,
}

impl Entry {
    /// The entry of a report; none if it was slowed down on purpose or only checks results.
    pub fn of(report: &Report) -> Option<Entry> {
        if report.runtime.slowed_down_pct.is_some() || report.runtime.is_for_checking() {
            return None;
        }
        let git = report.header.git.as_ref();
        let commit = git.map(|git| format!("{}{}", git.commit, if git.dirty { "+" } else { "" }));
        let machine = &report.machine;
        let circumstances = Circumstances {
            commit,
            system: machine.os_build.clone().or_else(|| machine.os_version.clone()),
            tool: report.header.tool_version.clone(),
            packages: report.subject.package_digests.clone(),
        };
        let figures =
            report.figures.iter().filter(|figure| METRICS.contains(&figure.metric)).cloned().collect();
        Some(Entry { key: Key::of(report), time: report.header.created.clone(), circumstances, figures })
    }
}

/// Points that belong together, and a figure that says of what they are, by key, metric and place.
type Groups = BTreeMap<(Key, Metric, Option<String>), (Figure, Vec<Point>)>;

/// The series of entries, each report counted once however often it is given.
pub fn history(mut entries: Vec<Entry>, false_rate: f64) -> History {
    entries.sort_by(|a, b| (&a.key, &a.time).cmp(&(&b.key, &b.time)));
    entries.dedup_by(|a, b| a.key == b.key && a.time == b.time && a.figures == b.figures);
    let reports = entries.len();
    let mut groups: Groups = BTreeMap::new();
    for Entry { key, time, circumstances, figures } in entries {
        for figure in figures {
            let Some(value) = figure.summary.percentiles.p50.filter(|value| value.is_finite()) else {
                continue;
            };
            let place = figure.place().map(|place| place.in_words());
            let point = Point { time: time.clone(), value, circumstances: circumstances.clone() };
            let group = groups.entry((key.clone(), figure.metric, place));
            group.or_insert_with(|| (figure, Vec::new())).1.push(point);
        }
    }
    let series = |((key, metric, place), (figure, points)): (_, (Figure, Vec<Point>))| {
        let (key, metric): (Key, Metric) = (key, metric);
        let changes = changes(&points, figure.direction, false_rate);
        Series {
            profile: key.profile,
            model: format!("{} ({})", key.model, key.precision),
            workload: key.workload,
            metric,
            place,
            unit: figure.unit,
            direction: figure.direction,
            points,
            changes,
        }
    };
    History {
        schema: SCHEMA.to_owned(),
        false_rate,
        reports,
        series: groups.into_iter().map(series).collect(),
    }
}

fn changes(points: &[Point], direction: Direction, false_rate: f64) -> Vec<Change> {
    // Speeds change by factors, so it is their logarithms that are shifted.
    let logarithms: Option<Vec<f64>> =
        points.iter().map(|point| (point.value > 0.0).then(|| point.value.ln())).collect();
    let found = change_points(&logarithms.unwrap_or_default(), false_rate);
    let change = |found: crate::stats::ChangePoint| {
        let (before, after) = (found.before.exp(), found.after.exp());
        let (last, first) = (&points[found.index - 1], &points[found.index]);
        let differences = first.circumstances.differences(&last.circumstances).into_iter();
        Change {
            index: found.index,
            time: first.time.clone(),
            before,
            after,
            change_pct: (after / before - 1.0) * 100.0,
            is_worse: (after > before) == (direction == Direction::LowerIsBetter),
            differences: differences
                .map(|(what, before, after)| Difference { what: what.to_owned(), before, after })
                .collect(),
        }
    };
    found.into_iter().map(change).collect()
}
