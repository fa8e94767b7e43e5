//! A baseline against a candidate: by how many per cent each check is worse, its range, and what is allowed.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::types::RangedCoordf64;
use plotters::element::{Circle, PathElement, TriangleMarker};
use plotters::prelude::{Cartesian2d, RGBColor, SVGBackend};
use plotters::style::Color;

use super::canvas::{Area, Frame, GRID, GROUND, HEAD, INK, SERIES, Theme, draw_sized, text, tick};
use super::{Chart, Result};
use crate::gate::{Check, Effect, Limit, Status, Verdict};

const WIDTH: u32 = 940;
const ROW: i32 = 24;
/// Room for the names of checks, for their figures, and for the axis.
const NAMES: i32 = 160;
const FIGURES: i32 = 240;
const AXIS: i32 = 46;
const MARGIN: i32 = 10;
/// What the axis reaches to at least and at most, in per cent. Figures beyond stand at its end.
const REACH: (f64, f64) = (8.0, 60.0);

const STATUSES: [(Status, &str, RGBColor); 4] = [
    (Status::Fail, "fails", SERIES[1]),
    (Status::Inconclusive, "inconclusive", SERIES[3]),
    (Status::Pass, "passes", SERIES[0]),
    (Status::NotGated, "not gated", SERIES[4]),
];

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A check that has a change to show.
struct Row<'a> {
    check: &'a Check,
    effect: &'a Effect,
}

/// Every check of a verdict that compares the two, in the order of the verdict.
pub(super) fn effects(verdict: &Verdict, theme: Theme) -> Result<Option<Chart>> {
    let rows = verdict.checks.iter().filter_map(|check| Some(Row { check, effect: check.effect.as_ref()? }));
    let rows: Vec<Row<'_>> = rows.collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let used = STATUSES.iter().filter(|(status, ..)| rows.iter().any(|row| row.check.status == *status));
    let mut series: Vec<(String, RGBColor)> =
        used.map(|(_, name, colour)| ((*name).to_owned(), *colour)).collect();
    series.push(("limit".to_owned(), INK));
    let frame = Frame {
        title: "Candidate against baseline",
        x: "worse than the baseline by (%); to the left of 0 is better",
        y: "",
        series,
    };
    let height = HEAD + ROW * rows.len() as i32 + AXIS + MARGIN;
    let svg = draw_sized(&frame, (WIDTH, height.unsigned_abs()), theme, |area| paint(area, &frame, &rows))?;
    Ok(Some(Chart { name: "against".to_owned(), svg }))
}

fn paint(area: &Area<'_>, frame: &Frame<'_>, rows: &[Row<'_>]) -> Result<(), String> {
    let reach = reach(rows);
    let mut plot = ChartBuilder::on(area)
        .margin_top(HEAD)
        .margin_bottom(MARGIN)
        .margin_left(NAMES)
        .margin_right(FIGURES)
        .x_label_area_size(AXIS)
        .build_cartesian_2d(reach.0..reach.1, 0.0..rows.len() as f64)
        .map_err(|e| e.to_string())?;
    plot.configure_mesh()
        .x_desc(frame.x)
        .x_labels(9)
        .x_label_formatter(&|x| tick(*x))
        .label_style(text(13))
        .axis_desc_style(text(14))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(GRID.mix(0.0))
        .disable_y_mesh()
        .disable_y_axis()
        .draw()
        .map_err(|e| e.to_string())?;
    let nothing = PathElement::new(vec![(0.0, 0.0), (0.0, rows.len() as f64)], INK.stroke_width(1));
    plot.draw_series([nothing]).map_err(|e| e.to_string())?;
    for (index, row) in rows.iter().enumerate() {
        let y = HEAD + ROW * index as i32 + 7;
        area.draw_text(&row.check.label(), &text(14), (14, y)).map_err(|e| e.to_string())?;
        let x = WIDTH as i32 - FIGURES + 14;
        area.draw_text(&figures(row), &text(14), (x, y)).map_err(|e| e.to_string())?;
        paint_row(&mut plot, row, (rows.len() - index) as f64 - 0.5, reach)?;
    }
    Ok(())
}

/// The range as a bar, the estimate as a mark whose form says how it was judged, and the limit.
fn paint_row(plot: &mut Plot<'_, '_>, row: &Row<'_>, y: f64, (low, high): (f64, f64)) -> Result<(), String> {
    let colour =
        STATUSES.iter().find(|(status, ..)| *status == row.check.status).map_or(INK, |found| found.2);
    let on_axis = |pct: f64| pct.clamp(low, high);
    if let Some(limit) = limit(row).filter(|limit| (low..=high).contains(limit)) {
        let line = PathElement::new(vec![(limit, y - 0.5), (limit, y + 0.5)], INK.stroke_width(2));
        plot.draw_series([line]).map_err(|e| e.to_string())?;
    }
    if let Some(range) = row.effect.interval_pct {
        let bar =
            PathElement::new(vec![(on_axis(range.low), y), (on_axis(range.high), y)], colour.stroke_width(3));
        plot.draw_series([bar]).map_err(|e| e.to_string())?;
    }
    let at = (on_axis(row.effect.regression_pct), y);
    let drawn = match row.check.status {
        Status::Fail => plot.draw_series([TriangleMarker::new(at, 8, colour.filled())]).map(|_| ()),
        Status::Pass => plot.draw_series([Circle::new(at, 5, colour.filled())]).map(|_| ()),
        Status::Inconclusive | Status::NotGated => {
            let rings = [Circle::new(at, 6, colour.filled()), Circle::new(at, 3, GROUND.filled())];
            plot.draw_series(rings).map(|_| ())
        }
    };
    drawn.map_err(|e| e.to_string())
}

fn limit(row: &Row<'_>) -> Option<f64> {
    match row.check.limit {
        Some(Limit::RegressionPct(pct)) => Some(pct),
        _ => None,
    }
}

fn figures(row: &Row<'_>) -> String {
    let range = row.effect.interval_pct;
    let range = range.map(|range| format!(" ({} … {})", signed(range.low), signed(range.high)));
    let limit = limit(row).map(|limit| format!(", limit {} %", tick(limit)));
    let pct = signed(row.effect.regression_pct);
    format!("{pct} %{}{}", range.unwrap_or_default(), limit.unwrap_or_default())
}

/// A number with its sign; what rounds to zero has no minus.
fn signed(pct: f64) -> String {
    let text = format!("{pct:+.1}");
    if text == "-0.0" { "+0.0".to_owned() } else { text }
}

/// The ends of the axis: everything that is shown, within reason.
fn reach(rows: &[Row<'_>]) -> (f64, f64) {
    let shown = rows.iter().flat_map(|row| {
        let range = row.effect.interval_pct.map(|range| [range.low, range.high]);
        range.into_iter().flatten().chain([row.effect.regression_pct]).chain(limit(row))
    });
    let (least, most) = REACH;
    let (low, high) = shown.fold((0.0, least), |(low, high): (f64, f64), pct| (low.min(pct), high.max(pct)));
    ((low - 1.0).max(-most), (high + 1.0).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Outcome, Range};
    use crate::render::verdict::testing::verdict;

    fn changed(change: impl Fn(&mut Effect)) -> Verdict {
        let mut verdict = verdict();
        verdict.checks.iter_mut().filter_map(|check| check.effect.as_mut()).for_each(change);
        verdict
    }

    #[test]
    fn every_change_is_a_row_with_its_figures() {
        for theme in [Theme::File, Theme::Page] {
            let chart = effects(&verdict(), theme).unwrap().unwrap();
            assert_eq!(chart.name, "against");
            for words in
                ["TTFT p50 at 512", "TTFT pooled tail", "+8.1 % (+6.1 … +10.1), limit 5 %", "fails", "passes"]
            {
                assert!(chart.svg.contains(words), "{words}");
            }
            assert!(!chart.svg.contains("cosine"), "nothing was compared");
            assert!(!chart.svg.contains("#0102"));
        }
    }

    #[test]
    fn a_verdict_without_changes_has_no_chart() {
        let mut verdict = verdict();
        verdict.checks.retain(|check| check.effect.is_none());
        assert_eq!(effects(&verdict, Theme::File).unwrap(), None);
        verdict.checks.clear();
        verdict.outcome = Outcome::Inconclusive;
        assert_eq!(effects(&verdict, Theme::File).unwrap(), None);
    }

    #[test]
    fn absurd_figures_stay_on_the_chart() {
        let absurd = changed(|effect| {
            effect.regression_pct = 1e300;
            effect.interval_pct = Some(Range { low: -1e300, high: 1e308, confidence: 0.95 });
        });
        let chart = effects(&absurd, Theme::File).unwrap().unwrap();
        let rows =
            absurd.checks.iter().filter_map(|check| Some(Row { check, effect: check.effect.as_ref()? }));
        assert_eq!(reach(&rows.collect::<Vec<_>>()), (-60.0, 60.0));
        assert!(!chart.svg.contains("NaN") && !chart.svg.contains("inf"));
        let equal = changed(|effect| (effect.regression_pct, effect.interval_pct) = (-0.01, None));
        assert!(effects(&equal, Theme::File).unwrap().unwrap().svg.contains("+0.0 %, limit 5 %"));
    }
}
