//! The ground that charts are drawn on: size, axes, colours, numbers at the axes.

use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::element::Rectangle;
use plotters::prelude::{Cartesian2d, DrawingArea, IntoDrawingArea, IntoFont, RGBColor, TextStyle};
use plotters::series::LineSeries;
use plotters::style::Color;

use crate::render::number::digits;
use crate::render::{RenderError, Result};

const SIZE: (u32, u32) = (620, 340);
/// Height of the title and of the row that says which colour is which.
const TITLE: i32 = 30;
const LEGEND: i32 = 22;
/// Height of both together, with a little room.
pub(super) const HEAD: i32 = TITLE + LEGEND + 6;
/// Numbers that an axis has no steps for.
const TINY: f64 = 1e-100;
const HUGE: f64 = 1e110;
const FONT: &str = "sans-serif";

/// Placeholders for text and axes, for lines behind the data, and for the ground. Nothing else has these colours.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
pub(super) const GRID: RGBColor = RGBColor(1, 2, 4);
pub(in crate::render) const GROUND: RGBColor = RGBColor(1, 2, 5);

/// Colours of series that can be told apart with any kind of colour vision, on light and dark ground.
pub(super) const SERIES: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Where a chart is going to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// In a file of its own: dark on white.
    File,
    /// Inside a page that defines `--ink`, `--grid` and `--ground`.
    Page,
}

impl Theme {
    pub(in crate::render) fn apply(self, svg: &str, title: &str) -> String {
        let colours = match self {
            Theme::File => ["#222222", "#dddddd", "#ffffff"],
            Theme::Page => ["var(--ink)", "var(--grid)", "var(--ground)"],
        };
        let mut svg = svg.to_owned();
        for (placeholder, colour) in ["\"#010203\"", "\"#010204\"", "\"#010205\""].into_iter().zip(colours) {
            svg = svg.replace(placeholder, &format!("\"{colour}\""));
        }
        let label = minijinja::HtmlEscape(title).to_string();
        svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1)
    }
}

/// What stands around a chart.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// Names of series and their colours.
    pub(super) series: Vec<(String, RGBColor)>,
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A chart over an x axis, with numbers up the side.
pub(super) type Plot<'a, 'b, X> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>;

/// Draws on a new area and gives the document.
pub(super) fn draw(
    frame: &Frame<'_>,
    theme: Theme,
    paint: impl FnOnce(&Area<'_>) -> Result<(), String>,
) -> Result<String> {
    draw_sized(frame, SIZE, theme, paint)
}

/// The same in a size of its own.
pub(super) fn draw_sized(
    frame: &Frame<'_>,
    size: (u32, u32),
    theme: Theme,
    paint: impl FnOnce(&Area<'_>) -> Result<(), String>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&GROUND).map_err(|e| RenderError::new("a chart", e))?;
        headline(&area, frame).map_err(|e| RenderError::new("a chart", e))?;
        paint(&area).map_err(|e| RenderError::new("a chart", e))?;
        area.present().map_err(|e| RenderError::new("a chart", e))?;
    }
    Ok(theme.apply(&svg, frame.title))
}

/// Draws the title and, in a row below it, the names of series beside their colours, where no data can be.
fn headline(area: &Area<'_>, frame: &Frame<'_>) -> Result<(), String> {
    /// Width of a letter at the size of the names, generously.
    const LETTER: i32 = 7;
    let draw = |text: &str, style: &TextStyle<'_>, at: (i32, i32)| {
        area.draw_text(text, style, at).map_err(|e| e.to_string())
    };
    draw(frame.title, &text(17), (14, 12))?;
    let mut x = 16;
    for (name, colour) in &frame.series {
        let swatch = Rectangle::new([(x, TITLE + 9), (x + 12, TITLE + 19)], colour.filled());
        area.draw(&swatch).map_err(|e| e.to_string())?;
        draw(name, &text(13), (x + 18, TITLE + 8))?;
        x += 18 + LETTER * name.chars().count() as i32 + 16;
    }
    Ok(())
}

/// Text of a size in ink.
pub(in crate::render) fn text(size: i32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// A chart with axes; numbers at the y axis begin at zero and leave room above the data.
pub(super) fn plot<'a, 'b, X>(
    area: &'a Area<'b>,
    frame: &Frame<'_>,
    x: X,
    highest: f64,
    label_x: Label<'_, <X::CoordDescType as Ranged>::ValueType>,
    labels: usize,
) -> Result<Plot<'a, 'b, X::CoordDescType>, String>
where
    X: AsRangedCoord,
    X::CoordDescType: ValueFormatter<<X::CoordDescType as Ranged>::ValueType>,
{
    let top = if highest > TINY { highest * 1.15 } else { 1.0 };
    plot_between(area, frame, (x, label_x, labels), 0.0..top, &|y| tick(*y))
}

/// A label of a number at an axis.
type Label<'a, T> = &'a dyn Fn(&T) -> String;

/// A chart with axes over any numbers.
pub(super) fn plot_between<'a, 'b, X>(
    area: &'a Area<'b>,
    frame: &Frame<'_>,
    (x, label_x, labels): (X, Label<'_, <X::CoordDescType as Ranged>::ValueType>, usize),
    y: Range<f64>,
    label_y: Label<'_, f64>,
) -> Result<Plot<'a, 'b, X::CoordDescType>, String>
where
    X: AsRangedCoord,
    X::CoordDescType: ValueFormatter<<X::CoordDescType as Ranged>::ValueType>,
{
    let size = y.start.abs().max(y.end.abs());
    // Steps along an axis are added up, which must come to an end.
    if !(size <= HUGE && y.end - y.start > size * 1e-9) {
        return Err(format!("numbers from {:e} to {:e} have no axis", y.start, y.end));
    }
    let mut plot = ChartBuilder::on(area)
        .margin(10)
        .margin_top(if frame.series.is_empty() { TITLE + 4 } else { HEAD })
        .margin_right(24)
        .x_label_area_size(46)
        .y_label_area_size(66)
        .build_cartesian_2d(x, y)
        .map_err(|e| e.to_string())?;
    plot.configure_mesh()
        .x_desc(frame.x)
        .y_desc(frame.y)
        .x_labels(labels)
        .y_labels(6)
        .x_label_formatter(label_x)
        .y_label_formatter(label_y)
        .label_style(text(13))
        .axis_desc_style(text(14))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(GRID.mix(0.0))
        .disable_x_mesh()
        .draw()
        .map_err(|e| e.to_string())?;
    Ok(plot)
}

/// A number at an axis, without digits that say nothing.
pub(super) fn tick(value: f64) -> String {
    let text = digits(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A line through points.
pub(super) fn line<X>(
    plot: &mut Plot<'_, '_, X>,
    points: Vec<(X::ValueType, f64)>,
    colour: RGBColor,
) -> Result<(), String>
where
    X: Ranged,
    X::ValueType: Clone + 'static,
{
    let series = LineSeries::new(points, colour.stroke_width(2));
    plot.draw_series(series).map(|_| ()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_no_idle_digits() {
        assert_eq!([0.0, 0.5, 2.0, 12.5, 250.0, 0.3].map(tick), ["0", "0.5", "2", "12.5", "250", "0.3"]);
    }

    #[test]
    fn titles_are_escaped() {
        let themed = Theme::Page.apply("<svg width=\"1\"><rect fill=\"#010203\"/></svg>", "a \"<b>");
        assert_eq!(
            themed,
            "<svg role=\"img\" aria-label=\"a &quot;&lt;b&gt;\" width=\"1\"><rect fill=\"var(--ink)\"/></svg>"
        );
    }
}
