//! Size, speed and quality of several bundles: what each takes, what it gives, and which nothing else beats.

use std::ops::Range;

use plotters::element::Circle;
use plotters::style::{Color, RGBColor};

use super::canvas::{Frame, SERIES, Theme, draw, line, plot_between, tick};
use super::{Chart, Result, labels};
use crate::render::number::digits;
use crate::report::Report;
use crate::sweep::{TradeOff, frontier};
use anemeter_base::text::visible;

const KINDS: [(&str, RGBColor); 3] =
    [("on the frontier", SERIES[2]), ("beaten by another", SERIES[0]), ("failed or too lossy", SERIES[1])];
const LIMIT: RGBColor = SERIES[3];

/// What is drawn over the size.
struct View {
    name: &'static str,
    title: &'static str,
    y: fn(&[TradeOff]) -> &'static str,
    /// Whether heights are logarithms to the base of ten.
    is_log: bool,
    /// The height of a bundle.
    height: fn(&TradeOff) -> Option<f64>,
    /// What its name says besides.
    beside: fn(&TradeOff) -> Option<String>,
}

const SPEED: View = View {
    name: "frontier",
    title: "Speed over size",
    y: |all| match all.iter().filter(|one| one.is_of_predictions).count() {
        0 => "tokens per second, p50",
        count if count == all.len() => "predictions per second, p50",
        _ => "tokens or predictions per second, p50",
    },
    is_log: false,
    height: |one| one.rate,
    beside: |one| Some(one.kl.map_or_else(|| "KL unknown".to_owned(), |kl| format!("KL {kl:.4}"))),
};

/// The logarithm of the divergence, since useful and useless lie powers of ten apart.
const QUALITY: View = View {
    name: "quality",
    title: "Loss of quality over size",
    y: |_| "mean KL divergence (nats)",
    is_log: true,
    height: |one| one.kl.map(|kl| kl.max(LEAST_KL).log10()),
    beside: |one| one.perplexity.map(|perplexity| format!("perplexity {}", digits(perplexity))),
};

/// Divergences below this are rounding.
const LEAST_KL: f64 = 1e-5;

/// A bundle in a chart.
struct Point {
    at: (f64, f64),
    name: String,
    kind: usize,
}

/// Speed over size and divergence over size; each only if two bundles have it.
pub(super) fn trade_offs(all: &[TradeOff], theme: Theme) -> Result<Vec<Chart>> {
    let is_best = frontier(all);
    let mut charts = Vec::new();
    for view in [SPEED, QUALITY] {
        let points: Vec<Point> =
            all.iter().zip(&is_best).filter_map(|(one, &is_best)| point(one, is_best, &view)).collect();
        if points.len() > 1 {
            let limits = all.iter().filter_map(|one| one.kl_limit).reduce(f64::min);
            let limit = limits.filter(|_| view.is_log);
            let svg = chart(&points, &view, (view.y)(all), limit, theme)?;
            charts.push(Chart { name: view.name.to_owned(), svg });
        }
    }
    Ok(charts)
}

fn point(one: &TradeOff, is_best: bool, view: &View) -> Option<Point> {
    let at = (one.package_bytes as f64 / 1e6, (view.height)(one)?);
    let kind = match (&one.excluded, is_best) {
        (Some(_), _) => 2,
        (None, false) => 1,
        (None, true) => 0,
    };
    let name = visible(&one.name);
    let name = (view.beside)(one).map_or_else(|| name.clone(), |beside| format!("{name}, {beside}"));
    Some(Point { at, name, kind })
}

fn chart(points: &[Point], view: &View, y: &str, limit: Option<f64>, theme: Theme) -> Result<String> {
    let largest = points.iter().map(|point| point.at.0).fold(0.0, f64::max);
    let seen = KINDS.iter().enumerate().filter(|(kind, _)| points.iter().any(|point| point.kind == *kind));
    let mut series: Vec<_> = seen.map(|(_, (name, colour))| ((*name).to_owned(), *colour)).collect();
    series.extend(limit.map(|limit| (format!("limit {limit} nats"), LIMIT)));
    let frame = Frame { title: view.title, x: "packages (MB)", y, series };
    draw(&frame, theme, |area| {
        let label_x: &dyn Fn(&f64) -> String = &|x| tick(*x);
        let label_y: &dyn Fn(&f64) -> String = &|y| label(*y, view);
        let x = (0.0..largest * 1.1, label_x, 8);
        let mut plot = plot_between(area, &frame, x, heights(points, view, limit), label_y)?;
        if let Some(limit) = limit.map(f64::log10) {
            line(&mut plot, vec![(0.0, limit), (largest * 1.1, limit)], LIMIT)?;
        }
        let dots = points.iter().map(|point| Circle::new(point.at, 5, KINDS[point.kind].1.filled()));
        plot.draw_series(dots).map_err(|e| e.to_string())?;
        let (across, down) = plot.plotting_area().get_pixel_range();
        let named: Vec<_> =
            points.iter().map(|point| (plot.backend_coord(&point.at), point.name.clone())).collect();
        labels::draw(area, &named, (&across, &down))
    })
}

/// What the axis shows: from zero on, or whole powers of ten.
fn heights(points: &[Point], view: &View, limit: Option<f64>) -> Range<f64> {
    let all = || points.iter().map(|point| point.at.1).chain(limit.map(f64::log10));
    let highest = all().fold(f64::NEG_INFINITY, f64::max);
    match view.is_log {
        true => (all().fold(f64::INFINITY, f64::min) - 0.5).floor()..(highest + 0.5).ceil(),
        false => 0.0..if highest > 0.0 { highest * 1.15 } else { 1.0 },
    }
}

fn label(y: f64, view: &View) -> String {
    match view.is_log {
        false => tick(y),
        true if y.fract() != 0.0 => String::new(),
        true => format!("{:.*}", (-y).max(0.0) as usize, 10f64.powf(y)),
    }
}

/// The same of reports at the longest sequence length, or the last case, that all have; nothing if all measured the same
/// packages. Bundles of one model are told apart by their precisions.
pub(super) fn of_reports(reports: &[Report], theme: Theme) -> Result<Vec<Chart>> {
    let Some(first) = reports.first() else { return Ok(Vec::new()) };
    let differ = reports.iter().any(|report| report.subject.package_digests != first.subject.package_digests);
    let mut places = first.places().into_iter().rev();
    let common = places.find(|place| reports.iter().all(|report| report.places().contains(place)));
    let (Some(place), true) = (common, differ) else { return Ok(Vec::new()) };
    let is_one_model = reports.iter().all(|report| report.subject.name == first.subject.name);
    let name = |report: &Report| match is_one_model {
        true => report.subject.precision.clone(),
        false => report.subject.label(),
    };
    let point = |report: &Report| TradeOff::of(&name(report), report, &place);
    trade_offs(&reports.iter().map(point).collect::<Vec<_>>(), theme)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn every_bundle_has_its_place_and_its_divergence() {
        let mut int8 = testing::with_launches(vec![testing::launch(0, 0.5)]);
        int8.subject.precision = "int8".to_owned();
        int8.subject.package_bytes /= 2;
        let mut found = testing::verification();
        found.quality = Some(testing::quality_loss());
        int8.verification = Some(found);
        let mut fp16 = testing::with_launches(vec![testing::launch(0, 1.0)]);
        fp16.subject.package_digests = vec!["xxh3:77".to_owned()];
        let charts = of_reports(&[fp16.clone(), int8.clone()], Theme::File).unwrap();
        assert_eq!(charts.len(), 1, "one divergence is nothing to compare");
        let svg = &charts[0].svg;
        assert_eq!(svg.matches("<circle").count(), 2);
        for text in [
            "int8, KL 0.0110",
            "fp16, KL unknown",
            "on the frontier",
            "packages (MB)",
            "tokens per second, p50",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("failed or too lossy"));
        fp16.verification.clone_from(&int8.verification);
        let found = fp16.verification.as_mut().unwrap();
        found.package_digests.clone_from(&fp16.subject.package_digests);
        let loss = found.quality.as_mut().unwrap();
        (loss.kl, loss.text.as_mut().unwrap().packages) = (Some(0.0), 20.0);
        let charts = of_reports(&[fp16.clone(), int8], Theme::File).unwrap();
        let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["frontier", "quality"]);
        for text in ["fp16, perplexity 20.0", "int8, perplexity 20.1", "limit 0.1 nats", "0.01"] {
            assert!(charts[1].svg.contains(text), "{text}: {}", charts[1].svg);
        }
        for reports in [&[fp16.clone(), fp16.clone()][..], &[fp16], &[]] {
            assert_eq!(of_reports(reports, Theme::File).unwrap(), []);
        }
    }

    #[test]
    fn bundles_of_several_models_have_their_names() {
        let mut reports = [testing::report(), testing::report()];
        reports[1].subject.name = "other".to_owned();
        reports[1].subject.package_digests = vec!["xxh3:77".to_owned()];
        let charts = of_reports(&reports, Theme::File).unwrap();
        assert!(charts[0].svg.contains("other (fp16), KL") && charts[0].svg.contains("tiny (fp16), KL"));
    }
}
