//! Two line charts side by side as one SVG.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, Circle, Color, DrawingArea, IntoDrawingArea, IntoFont, LineSeries, RGBColor, Rectangle,
    SVGBackend, TextStyle, WHITE,
};

const SIZE: (u32, u32) = (860, 340);
const INK: RGBColor = RGBColor(34, 34, 34);
const GRID: RGBColor = RGBColor(221, 221, 221);
/// Colours that can be told apart with any kind of colour vision.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// Points of one series, from left to right.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws both over the length of the sequence, each below its title.
pub(super) fn pair(left: (&str, &[Line]), right: (&str, &[Line])) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let halves = area.split_evenly((1, 2));
        for (half, (title, lines)) in halves.iter().zip([left, right]) {
            chart(half, title, lines)?;
        }
        area.present()?;
    }
    Ok(svg)
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn chart(area: &Area<'_>, title: &str, lines: &[Line]) -> Result<()> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let right = all().map(|point| point.0).fold(0.0, f64::max);
    let top = all().map(|point| point.1).fold(0.0, f64::max) * 1.1;
    if right <= 0.0 || top <= 0.0 {
        return Err(anyhow!("`{title}` has nothing to show"));
    }
    area.draw_text(title, &text(16), (16, 10))?;
    let mut plot = ChartBuilder::on(area)
        .margin(10)
        .margin_top(58)
        .margin_right(28)
        .x_label_area_size(44)
        .y_label_area_size(54)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    plot.configure_mesh()
        .x_desc("length of the sequence, tokens")
        .x_labels(5)
        .x_label_formatter(&|length| format!("{length:.0}"))
        .y_labels(6)
        .label_style(text(12))
        .axis_desc_style(text(12))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .draw()?;
    let mut at = 18;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        plot.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
        plot.draw_series(line.points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
        area.draw(&Rectangle::new([(at, 38), (at + 12, 48)], colour.filled()))?;
        area.draw_text(&line.name, &text(13), (at + 18, 36))?;
        at += 40 + 8 * line.name.len() as i32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_show_is_an_error() {
        assert!(pair(("a", &[]), ("b", &[])).is_err());
    }
}
