//! Step latency over time, in measured launches and in a long run.

use plotters::element::{Circle, Cross, PathElement};
use plotters::style::Color;

use super::canvas::{Frame, GRID, SERIES, Theme, draw, line, plot, tick};
use super::{Chart, Result};
use crate::report::{Launch, Outcome, Place, Report};
use crate::stats::median;
use anemeter_base::text::visible;

/// Beyond so many times the median a request is marked as an outlier.
const OUTLIER: f64 = 1.25;

/// The latencies of a launch in order: the median step of each request, or each prediction but the first ones.
fn latencies(launch: &Launch) -> Vec<(Place, Option<f64>)> {
    let requests = launch.requests.iter();
    let requests = requests.map(|request| (Place::SeqLen(request.seq_len), median(&request.steps_ms)));
    let predictions = launch.predictions.iter().filter(|one| !one.first);
    let predictions = predictions.map(|one| (Place::Case(one.case.clone()), Some(one.latency_ms)));
    requests.chain(predictions).collect()
}

/// The latency of every request, in the order of launches and requests.
pub(super) fn over_time(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    let completed = report.launches.iter().filter(|l| l.outcome == Outcome::Completed);
    let launches: Vec<Vec<(Place, Option<f64>)>> = completed.map(latencies).collect();
    let requests: Vec<&(Place, Option<f64>)> = launches.iter().flatten().collect();
    let highest = requests.iter().filter_map(|(_, ms)| *ms).fold(0.0, f64::max);
    if requests.len() < 2 || highest <= 0.0 {
        return Ok(None);
    }
    let ends: Vec<f64> = launches
        .iter()
        .scan(0, |total, launch| {
            *total += launch.len();
            Some(*total as f64 - 0.5)
        })
        .collect();
    let colours: Vec<(Place, _)> = report.places().into_iter().zip(SERIES.into_iter().cycle()).collect();
    let (title, y) = match report.is_of_predictions() {
        true => ("Latency over time", "latency (ms)"),
        false => ("Step latency over time", "median step (ms)"),
    };
    let names = colours.iter().map(|(place, colour)| (visible(&place.in_words()), *colour));
    let frame = Frame {
        title,
        x: "request, in order; lines divide launches; × is 25 % above the median",
        y,
        series: names.take(SERIES.len()).collect(),
    };
    let svg = draw(&frame, theme, |area| {
        let width = -0.5..requests.len() as f64 - 0.5;
        let mut plot = plot(area, &frame, width, highest, &|x| tick(x.round()), 10)?;
        let dividers = ends[..ends.len().saturating_sub(1)].iter();
        let dividers = dividers.map(|&x| PathElement::new(vec![(x, 0.0), (x, highest * 1.15)], GRID));
        plot.draw_series(dividers).map_err(|e| e.to_string())?;
        for (place, colour) in &colours {
            let points: Vec<(f64, f64)> = requests
                .iter()
                .enumerate()
                .filter(|(_, (at, _))| at == place)
                .filter_map(|(x, (_, ms))| Some((x as f64, (*ms)?)))
                .collect();
            let typical = median(&points.iter().map(|point| point.1).collect::<Vec<_>>()).unwrap_or(0.0);
            let (far, near): (Vec<_>, Vec<_>) = points.into_iter().partition(|p| p.1 > typical * OUTLIER);
            let dots = near.into_iter().map(|point| Circle::new(point, 3, colour.filled()));
            plot.draw_series(dots).map_err(|e| e.to_string())?;
            let crosses = far.into_iter().map(|point| Cross::new(point, 5, colour.stroke_width(2)));
            plot.draw_series(crosses).map_err(|e| e.to_string())?;
        }
        Ok(())
    })?;
    Ok(Some(Chart { name: "latency".to_owned(), svg }))
}

/// The median step of every request of a long run.
pub(super) fn soak(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    let Some(soak) = report.soak.as_ref().filter(|soak| soak.points.len() > 1) else { return Ok(None) };
    let points: Vec<_> = soak.points.iter().map(|point| (point.steps as f64, point.step_ms)).collect();
    let highest = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let frame =
        Frame { title: "Step latency in the long run", x: "steps", y: "median step (ms)", series: vec![] };
    let svg = draw(&frame, theme, |area| {
        let last = points.last().map_or(1.0, |point| point.0);
        let mut plot = plot(area, &frame, 0.0..last, highest, &|x| tick(*x), 10)?;
        line(&mut plot, points, SERIES[0])
    })?;
    Ok(Some(Chart { name: "soak-latency".to_owned(), svg }))
}
