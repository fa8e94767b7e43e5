//! Speed per sequence length or case: the median with its interval, and the slow tail.

use plotters::coord::ranged1d::{IntoSegmentedCoord, SegmentValue};
use plotters::element::{Circle, EmptyElement, ErrorBar, Text, TriangleMarker};
use plotters::style::Color;

use super::canvas::{Frame, SERIES, Theme, draw, plot, text};
use super::{Chart, Result};
use crate::render::number;
use crate::report::{Figure, Metric, Report};
use anemeter_base::text::visible;

/// Letters below all places together.
const LABELS: usize = 96;

pub(super) fn ttft(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    per_place(report, Metric::Ttft, "Time to the first token", "milliseconds", theme)
}

pub(super) fn tps(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    per_place(report, Metric::Tps, "Tokens per second", "tokens per second", theme)
}

pub(super) fn latency(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    per_place(report, Metric::Latency, "Latency of a prediction", "milliseconds", theme)
}

fn per_place(report: &Report, metric: Metric, title: &str, y: &str, theme: Theme) -> Result<Option<Chart>> {
    let figures: Vec<&Figure> =
        report.figures.iter().filter(|figure| figure.metric == metric && figure.place().is_some()).collect();
    let highest = figures.iter().map(|figure| top(figure)).fold(0.0, f64::max);
    let Some(last) = figures.len().checked_sub(1).and_then(|last| i32::try_from(last).ok()) else {
        return Ok(None);
    };
    let tails = figures.iter().enumerate().filter_map(|(i, f)| Some((i, f.summary.percentiles.p95?)));
    let tails: Vec<(usize, f64)> = tails.collect();
    let mut series = vec![("p50 and 95 % interval".to_owned(), SERIES[0])];
    if !tails.is_empty() {
        series.push(("p95 (slow tail)".to_owned(), SERIES[1]));
    }
    let x = if report.is_of_predictions() { "function and shapes" } else { "sequence length (tokens)" };
    let frame = Frame { title, x, y, series };
    let svg = draw(&frame, theme, |area| {
        let label = |place: &SegmentValue<i32>| place_label(&figures, place);
        let mut plot = plot(area, &frame, (0..last).into_segmented(), highest, &label, figures.len() + 1)?;
        let at = |index: usize| SegmentValue::CenterOf(index as i32);
        let medians =
            || figures.iter().enumerate().filter_map(|(i, f)| Some((i, f.summary.percentiles.p50?, *f)));
        let bars = medians().filter_map(|(i, p50, figure)| {
            let interval = figure.p50_interval?;
            let high = interval.high.min(highest);
            Some(ErrorBar::new_vertical(at(i), interval.low, p50, high, SERIES[0].stroke_width(2), 12))
        });
        plot.draw_series(bars).map_err(|e| e.to_string())?;
        let points = medians().map(|(i, p50, figure)| {
            EmptyElement::at((at(i), p50))
                + Circle::new((0, 0), 5, SERIES[0].filled())
                + Text::new(number::figure(p50, figure.unit), (12, -7), text(14))
        });
        plot.draw_series(points).map_err(|e| e.to_string())?;
        let marks = tails.iter().map(|(i, p95)| TriangleMarker::new((at(*i), *p95), 6, SERIES[1].filled()));
        plot.draw_series(marks).map(|_| ()).map_err(|e| e.to_string())
    })?;
    let name = match metric {
        Metric::Ttft => "ttft",
        Metric::Tps => "tps",
        _ => "prediction-latency",
    };
    Ok(Some(Chart { name: name.to_owned(), svg }))
}

/// The highest point to show. An interval from two launches can be absurdly wide, so it is cut off.
fn top(figure: &Figure) -> f64 {
    let percentiles = &figure.summary.percentiles;
    let most = figure.summary.maximum.max(percentiles.p95.unwrap_or(0.0));
    let interval = figure.p50_interval.map_or(0.0, |interval| interval.high);
    most.max(interval.min(most * 1.5))
}

fn place_label(figures: &[&Figure], place: &SegmentValue<i32>) -> String {
    let (SegmentValue::CenterOf(index) | SegmentValue::Exact(index)) = place else { return String::new() };
    let place = usize::try_from(*index).ok().and_then(|index| figures.get(index)?.place());
    // The ends of names are their shapes, which tell cases apart.
    let name = place.map_or(String::new(), |place| visible(&place.to_string()));
    let room = LABELS / figures.len().max(1);
    match name.chars().count() {
        count if count > room => format!("…{}", name.chars().skip(count - room).collect::<String>()),
        _ => name,
    }
}
