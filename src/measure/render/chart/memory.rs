//! Memory over time, in measured launches and in a long run.

use super::canvas::{Frame, SERIES, Theme, draw, line, plot, tick};
use super::{Chart, Result};
use crate::report::{Launch, Outcome, Report};

const MEGABYTE: f64 = 1e6;

/// Resident and private memory after every request, in the order of launches and requests.
pub(super) fn over_time(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    let completed = report.launches.iter().filter(|launch| launch.outcome == Outcome::Completed);
    let requests: Vec<[Option<u64>; 2]> = completed.flat_map(after_each).collect();
    let series = |which: usize| -> Vec<(f64, f64)> {
        let points = requests.iter().enumerate();
        points.filter_map(|(x, bytes)| Some((x as f64, bytes[which]? as f64 / MEGABYTE))).collect()
    };
    let (resident, private) = (series(0), series(1));
    let highest = resident.iter().chain(&private).map(|point| point.1).fold(0.0, f64::max);
    if resident.len() < 2 {
        return Ok(None);
    }
    let frame = Frame {
        title: "Memory after each request",
        x: "request, in order over all launches",
        y: "megabytes",
        series: vec![
            ("resident, mapped weights included".to_owned(), SERIES[0]),
            ("private".to_owned(), SERIES[1]),
        ],
    };
    let svg = draw(&frame, theme, |area| {
        let last = requests.len() as f64 - 1.0;
        let mut plot = plot(area, &frame, 0.0..last, highest, &|x| tick(x.round()), 10)?;
        line(&mut plot, resident, SERIES[0])?;
        line(&mut plot, private, SERIES[1])
    })?;
    Ok(Some(Chart { name: "memory".to_owned(), svg }))
}

/// Resident and private memory after each request or prediction of a launch.
fn after_each(launch: &Launch) -> impl Iterator<Item = [Option<u64>; 2]> {
    let requests = launch.requests.iter().map(|of| [of.resident_bytes, of.private_bytes]);
    requests.chain(launch.predictions.iter().map(|of| [of.resident_bytes, of.private_bytes]))
}

/// Private memory during a long run.
pub(super) fn soak(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    let Some(soak) = &report.soak else { return Ok(None) };
    let points = soak.points.iter();
    let points: Vec<(f64, f64)> = points
        .filter_map(|point| Some((point.steps as f64, point.private_bytes? as f64 / MEGABYTE)))
        .collect();
    let highest = points.iter().map(|point| point.1).fold(0.0, f64::max);
    if points.len() < 2 {
        return Ok(None);
    }
    let frame = Frame { title: "Private memory in the long run", x: "steps", y: "megabytes", series: vec![] };
    let svg = draw(&frame, theme, |area| {
        let last = points.last().map_or(1.0, |point| point.0);
        let mut plot = plot(area, &frame, 0.0..last, highest, &|x| tick(*x), 10)?;
        line(&mut plot, points, SERIES[0])
    })?;
    Ok(Some(Chart { name: "soak-memory".to_owned(), svg }))
}
