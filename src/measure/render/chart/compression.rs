//! How near compressed weights are to what they were, layer by layer.

use std::collections::BTreeMap;

use plotters::element::Circle;
use plotters::style::{Color, RGBColor};

use super::canvas::{Frame, SERIES, Theme, draw, line, plot, tick};
use super::{Chart, Result};
use crate::report::{CompressedWeight, Report};

/// Parts of a layer, by a word in the names of their weights; the last takes what is left.
const PARTS: [(&str, &str); 3] = [("attention", "_attention_"), ("MLP", "_mlp_"), ("other", "")];
const LOWEST: &str = "lowest of a layer";

/// A weight in the chart: its layer, or a place after the last, and its signal to noise.
type Point = (f64, f64);

/// Signal to noise of each compressed weight over its layer.
pub(super) fn by_layer(report: &Report, theme: Theme) -> Result<Option<Chart>> {
    let weights = &report.compression;
    let after = weights.iter().filter_map(|w| w.layer).max().map_or(0, |last| last.saturating_add(1));
    let parts: Vec<(&str, RGBColor, Vec<Point>)> = PARTS
        .iter()
        .zip(SERIES)
        .map(|((name, _), colour)| (*name, colour, points(weights, name, after)))
        .filter(|(_, _, points)| !points.is_empty())
        .collect();
    let highest = parts.iter().flat_map(|part| &part.2).map(|point| point.1).fold(0.0, f64::max);
    if highest <= 0.0 {
        return Ok(None);
    }
    let lowest = lowest(weights);
    let mut series: Vec<(String, RGBColor)> =
        parts.iter().map(|(name, colour, _)| ((*name).to_owned(), *colour)).collect();
    if lowest.len() > 1 {
        series.push((LOWEST.to_owned(), SERIES[4]));
    }
    let frame = Frame {
        title: "Signal to noise of compressed weights",
        x: "layer; embedding and head are at the end",
        y: "signal to noise (dB)",
        series,
    };
    let svg = draw(&frame, theme, |area| {
        let label = |x: &f64| if *x > after as f64 - 0.5 { "ends".to_owned() } else { tick(x.round()) };
        let mut plot = plot(area, &frame, -0.5..after as f64 + 0.5, highest, &label, 10)?;
        if lowest.len() > 1 {
            line(&mut plot, lowest, SERIES[4])?;
        }
        for (_, colour, points) in parts {
            let dots = points.into_iter().map(|point| Circle::new(point, 3, colour.filled()));
            plot.draw_series(dots).map_err(|e| e.to_string())?;
        }
        Ok(())
    })?;
    Ok(Some(Chart { name: "compression".to_owned(), svg }))
}

fn part_of(name: &str) -> &'static str {
    let found = PARTS.iter().find(|(_, word)| name.contains(word));
    found.map_or("", |(part, _)| part)
}

fn points(weights: &[CompressedWeight], part: &str, after: usize) -> Vec<Point> {
    let of_part = weights.iter().filter(|weight| part_of(&weight.name) == part);
    of_part.filter_map(|weight| Some((weight.layer.unwrap_or(after) as f64, weight.snr_db?))).collect()
}

/// The weight of each layer that loses most.
fn lowest(weights: &[CompressedWeight]) -> Vec<Point> {
    let mut layers: BTreeMap<usize, f64> = BTreeMap::new();
    for (layer, snr) in weights.iter().filter_map(|weight| Some((weight.layer?, weight.snr_db?))) {
        let least = layers.entry(layer).or_insert(snr);
        *least = least.min(snr);
    }
    layers.into_iter().map(|(layer, snr)| (layer as f64, snr)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    fn compressed() -> Report {
        Report { compression: testing::compression(), ..testing::report() }
    }

    #[test]
    fn every_weight_has_its_place() {
        let weights = testing::compression();
        assert_eq!(points(&weights, "attention", 3), [(0.0, 20.5), (1.0, 32.0), (2.0, 21.0)]);
        assert_eq!(points(&weights, "MLP", 3), [(0.0, 21.0), (1.0, 32.5), (2.0, 21.5)]);
        assert_eq!(points(&weights, "other", 3), [(3.0, 41.0)]);
        assert_eq!(lowest(&weights), [(0.0, 20.5), (1.0, 32.0), (2.0, 21.0)]);
        let svg = by_layer(&compressed(), Theme::File).unwrap().unwrap().svg;
        assert_eq!(svg.matches("<circle").count(), weights.len());
        for text in ["signal to noise (dB)", "attention", "MLP", "other", LOWEST, "ends"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn nothing_lost_is_no_chart() {
        assert_eq!(by_layer(&testing::report(), Theme::File).unwrap(), None);
        let mut exact = compressed();
        exact.compression.iter_mut().for_each(|weight| weight.snr_db = None);
        assert_eq!(by_layer(&exact, Theme::File).unwrap(), None);
    }

    #[test]
    fn any_numbers_are_drawn() {
        let mut odd = compressed();
        odd.compression[0].snr_db = Some(-3.0);
        odd.compression[1].layer = Some(usize::MAX);
        let svg = by_layer(&odd, Theme::Page).unwrap().unwrap().svg;
        assert!(!svg.contains("NaN") && svg.contains("var(--ink)"));
    }
}
