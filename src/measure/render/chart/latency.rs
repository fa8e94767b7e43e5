//! Step latency over time, in measured launches and in a long run.

use plotters::element::{Circle, Cross, PathElement};
use plotters::style::Color;

use super::canvas::{Frame, GRID, SERIES, Theme, draw, line, plot, tick};
use super::{Chart, Result};
use crate::report::{Outcome, Report, Request};
use crate::stats::median;

/// Beyond so many times the median a request is marked as an outlier.
const OUTLIER: f64 = 1.25;

/// The median step of every request, in the order of launches and requests.
pub(super) fn over_time(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    let completed: Vec<_> = report.launches.iter().filter(|l| l.outcome == Outcome::Completed).collect();
    let requests: Vec<&Request> = completed.iter().flat_map(|launch| &launch.requests).collect();
    let medians: Vec<Option<f64>> = requests.iter().map(|request| median(&request.steps_ms)).collect();
    let highest = medians.iter().flatten().copied().fold(0.0, f64::max);
    if requests.len() < 2 || highest <= 0.0 {
        return Ok(None);
    }
    let ends: Vec<f64> = completed
        .iter()
        .scan(0, |total, launch| {
            *total += launch.requests.len();
            Some(*total as f64 - 0.5)
        })
        .collect();
    let colours: Vec<(usize, _)> = report.seq_lens().into_iter().zip(SERIES.into_iter().cycle()).collect();
    let frame = Frame {
        title: "Step latency over time",
        x: "request, in order; lines divide launches; × is 25 % above the median",
        y: "median step (ms)",
        series: colours.iter().map(|(seq_len, colour)| (format!("seq_len {seq_len}"), *colour)).collect(),
    };
    let svg = draw(&frame, theme, |area| {
        let width = -0.5..requests.len() as f64 - 0.5;
        let mut plot = plot(area, &frame, width, highest, &|x| tick(x.round()), 10)?;
        let dividers = ends[..ends.len().saturating_sub(1)].iter();
        let dividers = dividers.map(|&x| PathElement::new(vec![(x, 0.0), (x, highest * 1.15)], GRID));
        plot.draw_series(dividers).map_err(|e| e.to_string())?;
        for &(seq_len, colour) in &colours {
            let points: Vec<(f64, f64)> = requests
                .iter()
                .zip(&medians)
                .enumerate()
                .filter(|(_, (request, _))| request.seq_len == seq_len)
                .filter_map(|(x, (_, median))| Some((x as f64, (*median)?)))
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
