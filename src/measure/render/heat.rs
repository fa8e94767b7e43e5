//! A heat map: rows of numbers as colours, on a logarithmic scale.

use plotters::element::Rectangle;
use plotters::prelude::{IntoDrawingArea, RGBColor, SVGBackend};
use plotters::style::Color;

use super::chart::canvas::{GROUND, Theme, text};
use super::{RenderError, Result};

/// A heat map: cells of rows and columns.
#[derive(Debug, Clone)]
pub struct HeatMap {
    /// Its title.
    pub title: String,
    /// What the columns are.
    pub x: String,
    /// What the numbers are.
    pub unit: String,
    /// Names and numbers of the rows, the lowest row first; an absent number is not finite.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

const WIDTH: i32 = 760;
const LEFT: i32 = 150;
const RIGHT: i32 = 20;
const TOP: i32 = 70;
const ROW: i32 = 14;
/// The ends of the scale, as powers of ten.
const SCALE: (i32, i32) = (-6, 0);
const LOST: RGBColor = RGBColor(0, 0, 0);

/// The map as an SVG document.
pub fn heat_map(map: &HeatMap) -> Result<String> {
    let height = TOP + ROW * map.rows.len() as i32 + 50;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        let failed = |e: &dyn std::fmt::Display| RenderError::new("a heat map", e);
        area.fill(&GROUND).map_err(|e| failed(&e))?;
        let write = |line: &str, size: i32, at: (i32, i32)| {
            area.draw_text(line, &text(size), at).map_err(|e| failed(&e))
        };
        let fill = |from: (i32, i32), to: (i32, i32), colour: RGBColor| {
            area.draw(&Rectangle::new([from, to], colour.filled())).map_err(|e| failed(&e))
        };
        write(&map.title, 17, (14, 12))?;
        for power in SCALE.0..=SCALE.1 {
            let x = LEFT + 64 * (power - SCALE.0);
            fill((x, 38), (x + 12, 48), colour(10f64.powi(power)))?;
            write(&format!("1e{power}"), 12, (x + 16, 37))?;
        }
        fill((LEFT + 64 * 7, 38), (LEFT + 64 * 7 + 12, 48), LOST)?;
        write("not finite", 12, (LEFT + 64 * 7 + 16, 37))?;
        for (index, (name, values)) in map.rows.iter().rev().enumerate() {
            let top = TOP + ROW * index as i32;
            write(name, 11, (10, top + 2))?;
            for (column, value) in values.iter().enumerate() {
                let [from, to] = [column, column + 1].map(|column| edge(column, values.len()));
                fill((from, top), (to, top + ROW - 1), value.map_or(LOST, colour))?;
            }
        }
        write(&format!("{}; {}", map.x, map.unit), 12, (LEFT, height - 34))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(Theme::File.apply(&svg, &map.title))
}

/// Where a column begins.
fn edge(column: usize, columns: usize) -> i32 {
    LEFT + ((WIDTH - LEFT - RIGHT) as usize * column / columns.max(1)) as i32
}

/// From pale blue at the low end of the scale to dark red at its high end.
fn colour(value: f64) -> RGBColor {
    const STOPS: [(f64, f64, f64); 4] =
        [(222.0, 235.0, 247.0), (146.0, 197.0, 222.0), (244.0, 165.0, 130.0), (140.0, 0.0, 20.0)];
    let (low, high) = (f64::from(SCALE.0), f64::from(SCALE.1));
    let power = if value > 0.0 { value.log10().clamp(low, high) } else { low };
    let place = (power - low) / (high - low) * (STOPS.len() - 1) as f64;
    let below = (place.floor() as usize).min(STOPS.len() - 2);
    let part = place - below as f64;
    let mix = |a: f64, b: f64| (a + (b - a) * part).round() as u8;
    let (a, b) = (STOPS[below], STOPS[below + 1]);
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_scale() {
        assert_eq!(colour(0.0), RGBColor(222, 235, 247));
        assert_eq!(colour(1e-9), colour(1e-6));
        assert_eq!(colour(1e-4), RGBColor(146, 197, 222));
        assert_eq!([1.0, 1e3].map(colour), [RGBColor(140, 0, 20); 2]);
    }

    #[test]
    fn every_number_is_a_rectangle_and_names_do_no_harm() {
        let rows = vec![
            ("embedding".to_owned(), vec![Some(0.0), Some(1e-4), None]),
            ("<layer 0>".to_owned(), vec![Some(1e-3), Some(0.5), Some(1.0)]),
        ];
        let map =
            HeatMap { title: "<b>".to_owned(), x: "position".to_owned(), unit: "error".to_owned(), rows };
        let svg = heat_map(&map).unwrap();
        // The ground, eight colours of the legend, six numbers.
        assert_eq!(svg.matches("<rect").count(), 1 + 8 + 6);
        assert!(svg.contains("&lt;layer 0&gt;") && !svg.contains("<b>"), "{svg}");
        let empty = HeatMap { rows: Vec::new(), ..map };
        assert!(heat_map(&empty).unwrap().starts_with("<svg"));
    }
}
