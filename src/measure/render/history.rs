//! A history for people: tables of its changes and series, and a page with a chart per series.

use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;

use super::table::Table;
use super::{RenderError, Result, number};
use crate::history::{Change, History, Point, Series};
use anemeter_base::text::visible;

const TEMPLATE: &str = include_str!("history.html");

/// Characters of a hash that are shown.
const HASH: usize = 12;

/// The changes, newest first, and the series that they are in. Series that never changed are counted.
pub fn history_tables(history: &History) -> Vec<Table> {
    let mut changes: Vec<(&Series, &Change)> =
        history.series.iter().flat_map(|series| series.changes.iter().map(move |change| (series, change))).collect();
    changes.sort_by(|a, b| b.1.time.cmp(&a.1.time));
    let note = format!(
        "{} reports, {} series. A series without a change has one in {} of 100 cases all the same. Means are of the medians \
         between two changes.",
        history.reports,
        history.series.len(),
        history.false_rate * 100.0
    );
    let headings = [">first after", "profile", "model", "workload", "what", ">before", ">after", ">change", "differs"];
    let mut of_changes = Table::new(&headings).titled("Changes", note);
    for (series, change) in changes {
        of_changes.row([
            change.time.clone(),
            series.profile.clone(),
            series.model.clone(),
            series.workload.clone(),
            series.title(),
            number::figure(change.before, series.unit),
            number::figure(change.after, series.unit),
            change_in_words(change),
            differences(change),
        ]);
    }
    let headings = ["profile", "model", "workload", "what", ">reports", ">oldest", ">newest", ">changes"];
    let mut of_series = Table::new(&headings).titled("Series", "");
    for series in &history.series {
        let value = |point: Option<&Point>| number::maybe(point.map(|point| point.value), series.unit);
        of_series.row([
            series.profile.clone(),
            series.model.clone(),
            series.workload.clone(),
            series.title(),
            series.points.len().to_string(),
            value(series.points.first()),
            value(series.points.last()),
            series.changes.len().to_string(),
        ]);
    }
    vec![of_changes, of_series]
}

fn change_in_words(change: &Change) -> String {
    format!("{:+.1} % {}", change.change_pct, if change.is_worse { "worse" } else { "better" })
}

fn differences(change: &Change) -> String {
    let one = |what: &str, before: &str, after: &str| format!("{what} {} → {}", short(before), short(after));
    let all = change.differences.iter().map(|found| one(&found.what, &found.before, &found.after));
    match change.differences.is_empty() {
        true => "nothing that reports tell".to_owned(),
        false => all.collect::<Vec<_>>().join(", "),
    }
}

fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(HASH).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// The size of a chart's area for points, and the margin for labels, in the units of the drawing.
const WIDE: f64 = 520.0;
const HIGH: f64 = 150.0;

#[derive(Serialize)]
struct Drawing {
    title: String,
    subtitle: String,
    highest: String,
    lowest: String,
    first: String,
    last: String,
    points: Vec<Dot>,
    levels: Vec<Level>,
    marks: Vec<Mark>,
}

#[derive(Serialize)]
struct Dot {
    x: f64,
    y: f64,
    hover: String,
}

/// The mean between two changes.
#[derive(Serialize)]
struct Level {
    from: f64,
    to: f64,
    y: f64,
}

/// A change.
#[derive(Serialize)]
struct Mark {
    x: f64,
    is_worse: bool,
    hover: String,
}

/// One page that needs nothing else: a chart of each series, those that changed first.
pub fn history_html(history: &History) -> Result<String> {
    let failed = |error: minijinja::Error| RenderError::new("the history", error);
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("history", TEMPLATE).map_err(failed)?;
    let (changed, flat): (Vec<&Series>, Vec<&Series>) =
        history.series.iter().filter(|series| series.points.len() > 1).partition(|series| !series.changes.is_empty());
    let drawings = |series: Vec<&Series>| series.into_iter().map(drawing).collect::<Vec<Drawing>>();
    let tables: Vec<Table> = history_tables(history).into_iter().map(Table::visible).collect();
    let context = context! {
        changes => &tables[0], reports => history.reports, series => history.series.len(),
        changed => drawings(changed), flat => drawings(flat), wide => WIDE, high => HIGH,
    };
    environment.get_template("history").and_then(|template| template.render(context)).map_err(failed)
}

fn drawing(series: &Series) -> Drawing {
    let values = || series.points.iter().map(|point| point.value);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    // A share of the range above and below; a constant series is in the middle.
    let margin = if high > low { (high - low) * 0.08 } else { high.abs().max(1.0) * 0.1 };
    let (bottom, top) = (low - margin, high + margin);
    let x = |index: f64| round(WIDE * index / (series.points.len() - 1) as f64);
    let y = |value: f64| round(HIGH * (top - value) / (top - bottom));
    let hover = |point: &Point| {
        let commit = point.circumstances.commit.as_deref().map(short).unwrap_or_default();
        let system = point.circumstances.system.clone().unwrap_or_default();
        visible(&format!("{} · {} {commit} {system}", number::figure(point.value, series.unit), point.time))
    };
    let dots = series.points.iter().enumerate();
    let starts = [0].into_iter().chain(series.changes.iter().map(|change| change.index));
    let ends = series.changes.iter().map(|change| change.index).chain([series.points.len()]);
    let level = |(from, to): (usize, usize)| {
        let mean = series.points[from..to].iter().map(|point| point.value).sum::<f64>() / (to - from) as f64;
        Level { from: x((from as f64 - 0.5).max(0.0)), to: x((to as f64 - 0.5).min(series.points.len() as f64 - 1.0)), y: y(mean) }
    };
    let mark = |change: &Change| Mark {
        x: x(change.index as f64 - 0.5),
        is_worse: change.is_worse,
        hover: visible(&format!("{}: {}", change_in_words(change), differences(change))),
    };
    let day = |point: Option<&Point>| point.map(|point| visible(point.time.get(..10).unwrap_or(&point.time)));
    Drawing {
        title: visible(&series.title()),
        subtitle: visible(&format!("{} · {} · {}", series.model, series.profile, series.workload)),
        highest: number::figure(high, series.unit),
        lowest: number::figure(low, series.unit),
        first: day(series.points.first()).unwrap_or_default(),
        last: day(series.points.last()).unwrap_or_default(),
        points: dots.map(|(index, point)| Dot { x: x(index as f64), y: y(point.value), hover: hover(point) }).collect(),
        levels: starts.zip(ends).map(level).collect(),
        marks: series.changes.iter().map(mark).collect(),
    }
}

/// Two places after the point are finer than any screen.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Circumstances, SCHEMA};
    use crate::report::Metric;
    use crate::stats::{Direction, Unit};

    fn history() -> History {
        let point = |index: usize| Point {
            time: format!("2026-01-{:02}T12:00:00Z", index + 1),
            value: if index < 4 { 10.0 } else { 12.0 },
            circumstances: Circumstances { commit: Some("<b>\u{1b}[2J".to_owned()), ..Circumstances::default() },
        };
        let change = Change {
            index: 4,
            time: "2026-01-05T12:00:00Z".to_owned(),
            before: 10.0,
            after: 12.0,
            change_pct: 20.0,
            is_worse: true,
            differences: Vec::new(),
        };
        let series = Series {
            profile: "m4".to_owned(),
            model: "tiny (fp16)".to_owned(),
            workload: "cpu-io-b1".to_owned(),
            metric: Metric::Ttft,
            place: Some("seq_len 128".to_owned()),
            unit: Unit::Milliseconds,
            direction: Direction::LowerIsBetter,
            points: (0..8).map(point).collect(),
            changes: vec![change],
        };
        History { schema: SCHEMA.to_owned(), false_rate: 0.01, reports: 8, series: vec![series] }
    }

    #[test]
    fn a_page_marks_changes_and_escapes_what_reports_say() {
        let page = history_html(&history()).unwrap();
        assert_eq!(page.matches("<circle").count(), 8);
        assert_eq!(page.matches("class=\"mark worse\"").count(), 1);
        assert!(page.contains("+20.0 % worse: nothing that reports tell"), "{page}");
        for harm in ["<b>\u{1b}", "\u{1b}", "<script", "http-equiv", "src="] {
            assert!(!page.contains(harm), "{harm}");
        }
    }

    #[test]
    fn tables_tell_what_changed() {
        let [changes, series] = &history_tables(&history())[..] else { panic!() };
        assert_eq!(changes.rows[0][4..8], ["TTFT p50 at seq_len 128", "10.0 ms", "12.0 ms", "+20.0 % worse"]);
        assert_eq!(series.rows[0][4..], ["8", "10.0 ms", "12.0 ms", "1"]);
    }
}
