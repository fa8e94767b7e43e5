//! Reports side by side, in the order in which they were given.

use std::collections::BTreeSet;

use plotters::coord::ranged1d::{IntoSegmentedCoord, SegmentValue};
use plotters::element::{Circle, ErrorBar};
use plotters::style::{Color, RGBColor};

use super::canvas::{Frame, SERIES, Theme, draw, plot};
use super::{Chart, Result};
use crate::report::{Figure, Metric, Place, Report};
use anemeter_base::text::visible;

pub(super) fn ttft(reports: &[Report], theme: Theme) -> Result<Option<Chart>> {
    history(reports, Metric::Ttft, "Time to the first token, report by report", "p50 (ms)", theme)
}

pub(super) fn tps(reports: &[Report], theme: Theme) -> Result<Option<Chart>> {
    history(reports, Metric::Tps, "Tokens per second, report by report", "p50 (tokens per second)", theme)
}

pub(super) fn latency(reports: &[Report], theme: Theme) -> Result<Option<Chart>> {
    history(reports, Metric::Latency, "Latency of a prediction, report by report", "p50 (ms)", theme)
}

fn history(reports: &[Report], metric: Metric, title: &str, y: &str, theme: Theme) -> Result<Option<Chart>> {
    let places: BTreeSet<Place> = reports.iter().flat_map(Report::places).collect();
    let at = |place: &Place| {
        let figures = reports.iter().enumerate().filter_map(|(index, report)| {
            let figure = report.figure_at(metric, Some(place))?;
            Some((index as i32, figure.summary.percentiles.p50?, figure))
        });
        figures.collect::<Vec<(i32, f64, &Figure)>>()
    };
    let highest = places.iter().flat_map(at).map(|(_, p50, _)| p50).fold(0.0, f64::max);
    let Some(last) = reports.len().checked_sub(1).filter(|&last| last > 0 && highest > 0.0) else {
        return Ok(None);
    };
    let colours: Vec<(&Place, RGBColor)> = places.iter().zip(SERIES.into_iter().cycle()).collect();
    let series = colours.iter().map(|(place, colour)| (visible(&place.in_words()), *colour)).collect();
    let frame = Frame { title, x: "report", y, series };
    let svg = draw(&frame, theme, |area| {
        let label = |place: &SegmentValue<i32>| match place {
            SegmentValue::CenterOf(index) | SegmentValue::Exact(index) => format!("{}", index + 1),
            SegmentValue::Last => String::new(),
        };
        let places = (0..last as i32).into_segmented();
        let mut plot = plot(area, &frame, places, highest * 1.1, &label, reports.len().min(20) + 1)?;
        for &(place, colour) in &colours {
            let figures = at(place);
            let bars = figures.iter().filter_map(|(index, p50, figure)| {
                let interval = figure.p50_interval?;
                let place = SegmentValue::CenterOf(*index);
                let high = interval.high.min(highest * 1.2);
                Some(ErrorBar::new_vertical(place, interval.low, *p50, high, colour.stroke_width(1), 8))
            });
            plot.draw_series(bars).map_err(|e| e.to_string())?;
            let dots = figures.iter().map(|(index, p50, _)| {
                Circle::new((SegmentValue::CenterOf(*index), *p50), 5, colour.filled())
            });
            plot.draw_series(dots).map_err(|e| e.to_string())?;
        }
        Ok(())
    })?;
    let name = match metric {
        Metric::Ttft => "history-ttft",
        Metric::Tps => "history-tps",
        _ => "history-latency",
    };
    Ok(Some(Chart { name: name.to_owned(), svg }))
}
