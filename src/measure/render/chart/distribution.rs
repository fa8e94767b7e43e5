//! How step latencies are distributed: a histogram and the share that is no slower.

use plotters::element::{PathElement, Rectangle};
use plotters::style::Color;

use super::canvas::{Frame, SERIES, Theme, draw, line, plot, tick};
use super::{Chart, Result};
use crate::report::{Metric, Outcome, Report};
use crate::stats::{Direction, Ordered};

const BINS: usize = 40;
/// Fewer values make no distribution.
const FEWEST: usize = 10;

/// A chart for every sequence length with enough steps.
pub(super) fn per_seq_len(report: &Report, theme: Theme) -> Result<Vec<Chart>> {
    let mut charts = Vec::new();
    for seq_len in report.seq_lens() {
        let completed = report.launches.iter().filter(|launch| launch.outcome == Outcome::Completed);
        let requests = completed.flat_map(|launch| &launch.requests).filter(|r| r.seq_len == seq_len);
        let steps: Vec<f64> = requests.flat_map(|request| Metric::InterToken.of_request(request)).collect();
        let ordered = Ordered::new(&steps, Direction::LowerIsBetter).filter(|o| o.values().len() >= FEWEST);
        if let Some(ordered) = ordered {
            charts.push(chart(seq_len, &ordered, theme)?);
        }
    }
    Ok(charts)
}

/// Few slow steps would squeeze all others together, so the last bin takes everything beyond p99.
fn chart(seq_len: usize, steps: &Ordered, theme: Theme) -> Result<Chart> {
    let values = steps.values();
    let low = values[0];
    let high = steps.quantile(0.99).max(low * 1.001).max(low + 1e-6);
    let width = (high - low) / BINS as f64;
    let mut counts = [0usize; BINS];
    for value in values {
        counts[(((value - low) / width) as usize).min(BINS - 1)] += 1;
    }
    let share = |count: usize| count as f64 / values.len() as f64;
    let tallest = counts.iter().copied().max().map_or(0.0, share);
    let title = format!("Inter-token latency at seq_len {seq_len}");
    let frame = Frame {
        title: &title,
        x: "milliseconds; the last bar holds everything beyond p99",
        y: "share of steps",
        series: vec![
            (format!("histogram (tallest bar {:.0} %)", tallest * 100.0), SERIES[5]),
            ("no slower than this".to_owned(), SERIES[1]),
            ("p50".to_owned(), SERIES[0]),
        ],
    };
    let svg = draw(&frame, theme, |area| {
        let mut plot = plot(area, &frame, low..low + width * BINS as f64, 1.0, &|x| tick(*x), 10)?;
        let bars = counts.iter().enumerate().map(|(bin, &count)| {
            let left = low + width * bin as f64;
            Rectangle::new([(left, 0.0), (left + width, share(count) / tallest)], SERIES[5].filled())
        });
        plot.draw_series(bars).map_err(|e| e.to_string())?;
        let shown = values.iter().enumerate().filter(|(_, value)| **value <= high);
        let curve: Vec<(f64, f64)> = shown.map(|(index, value)| (*value, share(index + 1))).collect();
        line(&mut plot, curve, SERIES[1])?;
        let p50 = steps.quantile(0.5);
        let median = PathElement::new(vec![(p50, 0.0), (p50, 1.0)], SERIES[0].stroke_width(2));
        plot.draw_series([median]).map(|_| ()).map_err(|e| e.to_string())
    })?;
    Ok(Chart { name: format!("inter-token-{seq_len}"), svg })
}
