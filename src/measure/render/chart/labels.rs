//! Names beside points, where they cover neither each other nor another point.

use std::ops::Range;

use plotters::element::PathElement;

use super::canvas::{Area, INK, text};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Height of a name and width of a letter, in pixels; letters generously.
const HEIGHT: i32 = 14;
const LETTER: f64 = 6.3;
/// Between a point and its name.
const GAP: i32 = 8;
/// Half of the size of a point.
const DOT: i32 = 6;
/// How many rows up and down are tried.
const ROWS: i32 = 8;

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    left: i32,
    top: i32,
    width: i32,
    height: i32,
}

impl Place {
    fn meets(&self, other: &Place) -> bool {
        self.left < other.left + other.width
            && other.left < self.left + self.width
            && self.top < other.top + other.height
            && other.top < self.top + self.height
    }

    fn is_within(&self, (x, y): (&Range<i32>, &Range<i32>)) -> bool {
        x.start <= self.left
            && self.left + self.width <= x.end
            && y.start <= self.top
            && self.top + self.height <= y.end
    }
}

/// Draws a name beside each point; one that had to move is tied to its point by a line.
pub(super) fn draw(
    area: &Area<'_>,
    points: &[((i32, i32), String)],
    within: (&Range<i32>, &Range<i32>),
) -> Result<(), String> {
    for (((x, y), name), place) in points.iter().zip(places(points, within)) {
        let middle = place.top + HEIGHT / 2;
        if middle != *y {
            let end = if place.left > *x { place.left - 2 } else { place.left + place.width + 2 };
            let tie = PathElement::new(vec![(*x, *y), (end, middle)], INK.mix(0.5));
            area.draw(&tie).map_err(|e| e.to_string())?;
        }
        // Letters may be narrower than they are taken for: a name ends where its place does if that is at the point.
        let (side, edge) = match place.left > *x {
            true => (HPos::Left, place.left),
            false => (HPos::Right, place.left + place.width),
        };
        let style = text(12).pos(Pos::new(side, VPos::Top));
        area.draw_text(name, &style, (edge, place.top)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Where each name stands: the first place beside its point, to the right before the left and near before far, that is free.
fn places(points: &[((i32, i32), String)], within: (&Range<i32>, &Range<i32>)) -> Vec<Place> {
    let dot = |(x, y): (i32, i32)| Place { left: x - DOT, top: y - DOT, width: 2 * DOT, height: 2 * DOT };
    let dots: Vec<Place> = points.iter().map(|(at, _)| dot(*at)).collect();
    let mut taken: Vec<Place> = Vec::with_capacity(points.len());
    for ((x, y), name) in points {
        let width = (LETTER * name.chars().count() as f64) as i32;
        let rows = (0..=ROWS).flat_map(|row| [-row, row]);
        let mut tried = rows.flat_map(|row| {
            let top = y - HEIGHT / 2 + row * HEIGHT;
            [x + GAP, x - GAP - width].map(|left| Place { left, top, width, height: HEIGHT })
        });
        let is_free = |place: &Place| {
            place.is_within(within) && !dots.iter().chain(&taken).any(|other| place.meets(other))
        };
        let beside = Place { left: x + GAP, top: y - HEIGHT / 2, width, height: HEIGHT };
        let found = tried.find(is_free).unwrap_or(beside);
        taken.push(found);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_apart(places: &[Place]) -> bool {
        places
            .iter()
            .enumerate()
            .all(|(index, place)| places[..index].iter().all(|other| !place.meets(other)))
    }

    #[test]
    fn names_of_points_that_coincide_stand_apart() {
        let points: Vec<_> = (0..6).map(|i| ((200 + i, 100), format!("configuration {i}"))).collect();
        let found = places(&points, (&(0..600), &(0..300)));
        assert!(all_apart(&found), "{found:?}");
        assert!(found.iter().all(|place| place.is_within((&(0..600), &(0..300)))));
    }

    #[test]
    fn a_name_at_the_edge_goes_to_the_left() {
        let points = [((590, 100), "fp16".to_owned()), ((10, 100), "int8".to_owned())];
        let found = places(&points, (&(0..600), &(0..300)));
        assert!(found[0].left < 590 && found[1].left == 10 + GAP, "{found:?}");
        assert_eq!(found[0].top, 100 - HEIGHT / 2);
    }

    #[test]
    fn a_name_covers_no_other_point() {
        let points = [((100, 100), "a long name".to_owned()), ((140, 100), "b".to_owned())];
        let found = places(&points, (&(0..600), &(0..300)));
        let other = Place { left: 134, top: 94, width: 12, height: 12 };
        assert!(!found[0].meets(&other), "{found:?}");
    }
}
