//! How step latencies are distributed: a histogram and the share that is no slower.

use plotters::element::{PathElement, Rectangle};
use plotters::style::Color;

use super::canvas::{Frame, SERIES, Theme, draw, line, plot, tick};
use super::{Chart, Result};
use crate::report::{Metric, Outcome, Place, Report};
use crate::stats::{Direction, Ordered};
use anemeter_base::text::visible;

const BINS: usize = 40;
/// Fewer values make no distribution.
const FEWEST: usize = 10;

/// Charts of the first places; more would make a page that nobody reads.
const MOST: usize = 12;

/// A chart for every sequence length with enough steps, or for every case with enough predictions.
pub(super) fn per_place(report: &Report, theme: Theme) -> Result<Vec<Chart>> {
    let mut charts = Vec::new();
    for (index, place) in report.places().iter().enumerate().take(MOST) {
        let completed = report.launches.iter().filter(|launch| launch.outcome == Outcome::Completed);
        let (metric, name, title) = match place {
            Place::SeqLen(seq_len) => (
                Metric::InterToken,
                format!("inter-token-{seq_len}"),
                format!("Inter-token latency at seq_len {seq_len}"),
            ),
            Place::Case(case) => {
                (Metric::Latency, format!("latency-{}", index + 1), format!("Latency of {}", visible(case)))
            }
        };
        let steps: Vec<f64> = completed.flat_map(|launch| launch.values(metric, place)).collect();
        let ordered = Ordered::new(&steps, Direction::LowerIsBetter).filter(|o| o.values().len() >= FEWEST);
        if let Some(ordered) = ordered {
            charts.push(Chart { name, svg: chart(&title, &ordered, theme)? });
        }
    }
    Ok(charts)
}

/// Few slow steps would squeeze all others together, so the last bin takes everything beyond p99.
fn chart(title: &str, steps: &Ordered, theme: Theme) -> Result<String> {
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
    let frame = Frame {
        title,
        x: "milliseconds; the last bar holds everything beyond p99",
        y: "share of steps",
        series: vec![
            (format!("histogram (tallest bar {:.0} %)", tallest * 100.0), SERIES[5]),
            ("no slower than this".to_owned(), SERIES[1]),
            ("p50".to_owned(), SERIES[0]),
        ],
    };
    draw(&frame, theme, |area| {
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
    })
}
