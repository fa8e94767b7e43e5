//! Resampling by nearest neighbour, linear and bilinear interpolation: where output positions lie on an input axis,
//! resizing along axes, and sampling at any point of a plane.
//!
//! Positions are computed in f64 whatever the element type: an image coordinate does not fit fp16.

use half::f16;

use super::convert::round_f16;
use super::parallel::for_each_chunk;

/// How output positions are spread over an input axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// First on first, last on last; a single position on the first.
    StrictAlignCorners,
    /// First on first, last on last; a single position in the middle.
    AlignCorners,
    /// As many input elements per output element everywhere, starting on the first.
    Default,
    /// Centres of equal parts of the interval between the first and the last element.
    OffsetCorners,
    /// Centres of equal parts of the axis, where elements are parts with an extent.
    UnalignCorners,
    /// The distances of `StrictAlignCorners` with the offset of `UnalignCorners`.
    AlignCornersHalfPixel,
}

/// Positions on an axis: `offset + i * spacing`, kept between 0 and `last`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    offset: f64,
    spacing: f64,
    last: f64,
}

impl Grid {
    /// `output` positions on an axis whose last element is at `last`.
    pub fn new(sampling: Sampling, last: f64, output: usize) -> Grid {
        let (size, count) = (last + 1.0, output as f64);
        let aligned = if output > 1 { last / (count - 1.0) } else { 0.0 };
        let (offset, spacing) = match sampling {
            Sampling::AlignCorners if output == 1 => (0.5 * last, 0.0),
            Sampling::StrictAlignCorners | Sampling::AlignCorners => (0.0, aligned),
            Sampling::Default => (0.0, size / count),
            Sampling::OffsetCorners => (0.5 * last.max(1.0) / count, last.max(1.0) / count),
            Sampling::UnalignCorners => (0.5 * size / count - 0.5, size / count),
            Sampling::AlignCornersHalfPixel => (0.5 * aligned - 0.5, aligned),
        };
        Grid { offset, spacing, last }
    }

    /// The position of output element `i`.
    pub fn position(&self, i: usize) -> f64 {
        (self.offset + i as f64 * self.spacing).max(0.0).min(self.last)
    }

    /// Whether the positions of `output` elements are all the elements there are.
    pub fn is_identity(&self, output: usize) -> bool {
        let single = output == 1 || self.spacing == 1.0;
        self.offset == 0.0 && single && self.last + 1.0 == output as f64
    }
}

/// Which element of an input axis each output element repeats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Nearest {
    /// The element in which the start of the output element lies.
    Start,
    /// The element in which the centre of the output element lies.
    Centre,
    /// The element nearest to a position; the later of two.
    Rounded(Grid),
}

impl Nearest {
    /// The input element, of `input`, that element `i` of `output` repeats.
    pub fn source(self, i: usize, input: usize, output: usize) -> usize {
        // In integers: a rounded quotient falls on the wrong side of an element's edge for some sizes.
        let (i, n, m) = (i as u128, input as u128, output.max(1) as u128);
        let found = match self {
            Nearest::Start => (i * n / m) as usize,
            Nearest::Centre => ((2 * i + 1) * n / (2 * m)) as usize,
            Nearest::Rounded(grid) => (grid.position(i as usize) + 0.5).floor() as usize,
        };
        found.min(input.saturating_sub(1))
    }
}

/// An input axis and the positions of output elements on it, each at or after an element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis<'a> {
    /// For each output element, the input element at or before its position.
    pub low: &'a [u32],
    /// For each output element, how far its position is from `low` to the next element.
    pub weight: &'a [f32],
    /// Elements of the input axis.
    pub input: usize,
}

/// Fills the tables of an [`Axis`].
pub fn locate(grid: Grid, low: &mut [u32], weight: &mut [f32]) {
    for (i, (low, weight)) in low.iter_mut().zip(weight).enumerate() {
        let position = grid.position(i);
        *low = position as u32;
        *weight = (position - position.floor()) as f32;
    }
}

/// Linear interpolation along the middle axis of `[outer, axis, inner]` data. With `round_steps` products and
/// sums are rounded to fp16.
pub fn interpolate(axis: Axis<'_>, inner: usize, input: &[f32], output: &mut [f32], round_steps: bool) {
    let (from, to) = (axis.input * inner, axis.low.len() * inner);
    if from == 0 || to == 0 {
        return;
    }
    let block = |input: &[f32], output: &mut [f32]| {
        for ((&low, &weight), row) in axis.low.iter().zip(axis.weight).zip(output.chunks_exact_mut(inner)) {
            let low = low as usize * inner;
            let first = &input[low..low + inner];
            if weight == 0.0 {
                row.copy_from_slice(first);
                continue;
            }
            for ((out, &a), &b) in row.iter_mut().zip(first).zip(&input[low + inner..]) {
                *out = mix(a, b, weight, round_steps);
            }
        }
    };
    let work = output.len();
    for_each_chunk(output, to, work, |i, output| block(&input[i * from..][..from], output));
}

// At weight 0 the neighbour does not count, not even by 0 * inf.
fn mix(a: f32, b: f32, weight: f32, round_steps: bool) -> f32 {
    if weight == 0.0 {
        a
    } else if round_steps {
        let weight = round_f16(weight);
        round_f16(round_f16(a * round_f16(1.0 - weight)) + round_f16(b * weight))
    } else {
        a * (1.0 - weight) + b * weight
    }
}

/// Repeats elements: per resized axis its input size and, for each output element, the input element.
pub fn pick<T: Copy + Send + Sync>(axes: &[(usize, &[u32])], input: &[T], output: &mut [T]) {
    let from: usize = axes.iter().map(|axis| axis.0).product();
    let to: usize = axes.iter().map(|axis| axis.1.len()).product();
    let Some((&(width, columns), rows)) = axes.split_last() else {
        return output.copy_from_slice(input);
    };
    if from == 0 || to == 0 {
        return;
    }
    let block = |input: &[T], output: &mut [T]| {
        for (row, out) in output.chunks_exact_mut(columns.len()).enumerate() {
            let (mut at, mut stride, mut rest) = (0, width, row);
            for &(size, sources) in rows.iter().rev() {
                at += sources[rest % sources.len()] as usize * stride;
                stride *= size;
                rest /= sources.len();
            }
            let source = &input[at..at + width];
            for (out, &column) in out.iter_mut().zip(columns) {
                *out = source[column as usize];
            }
        }
    };
    let work = output.len();
    for_each_chunk(output, to, work, |i, output| block(&input[i * from..][..from], output));
}

/// An element that is sampled as f32.
pub trait Sample: Copy + Send + Sync {
    /// Its value.
    fn value(self) -> f32;

    /// The nearest element.
    fn nearest(value: f32) -> Self;
}

impl Sample for f32 {
    fn value(self) -> f32 {
        self
    }

    fn nearest(value: f32) -> f32 {
        value
    }
}

impl Sample for f16 {
    fn value(self) -> f32 {
        self.to_f32()
    }

    fn nearest(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

/// What lies outside an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// One value everywhere.
    Constant,
    /// The element at the border.
    Border,
    /// The axis mirrored at the centres of its first and last elements.
    Reflection,
    /// The axis mirrored at the outer edges of its first and last elements.
    Symmetric,
}

impl Padding {
    /// The element that stands at `index`, if any of the `size` elements does.
    fn element(self, index: i64, size: usize) -> Option<usize> {
        let size = i64::try_from(size).ok().filter(|&size| size > 0)?;
        // A mirrored axis repeats itself, with its ends twice (`Symmetric`) or once (`Reflection`).
        let mirrored = |period: i64, turn: i64| {
            let index = index.rem_euclid(period);
            if index < size { index } else { turn - index }
        };
        let found = match self {
            Padding::Constant => Some(index).filter(|index| (0..size).contains(index))?,
            Padding::Border => index.clamp(0, size - 1),
            Padding::Reflection if size == 1 => 0,
            Padding::Reflection => mirrored(2 * (size - 1), 2 * (size - 1)),
            Padding::Symmetric => mirrored(2 * size, 2 * size - 1),
        };
        usize::try_from(found).ok()
    }
}

/// A position between two elements of an axis, either of which may be padding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tap {
    low: Option<usize>,
    high: Option<usize>,
    weight: f32,
}

impl Tap {
    /// A position of which only padding is seen.
    pub const OUTSIDE: Tap = Tap { low: None, high: None, weight: 0.0 };

    /// Linear interpolation at a position on an axis of `size`.
    pub fn linear(position: f64, size: usize, padding: Padding) -> Tap {
        if !position.is_finite() {
            return Tap::nearest(position, size, padding);
        }
        let low = position.floor();
        let index = low as i64;
        Tap {
            low: padding.element(index, size),
            high: padding.element(index.saturating_add(1), size),
            weight: (position - low) as f32,
        }
    }

    /// The element nearest to a position on an axis of `size`; the later of two.
    pub fn nearest(position: f64, size: usize, padding: Padding) -> Tap {
        let index = if position.is_nan() { -1 } else { (position + 0.5).floor() as i64 };
        let element = padding.element(index, size);
        Tap { low: element, high: element, weight: 0.0 }
    }
}

/// Images `[images, channels, height, width]` sampled at points: output `[blocks, channels, points]`.
#[derive(Debug, Clone, Copy)]
pub struct Sampler {
    /// Planes per image.
    pub channels: usize,
    /// Rows of a plane.
    pub height: usize,
    /// Elements of a row.
    pub width: usize,
    /// Points per block.
    pub points: usize,
    /// The value of padding.
    pub around: f32,
    /// Whether products and sums are rounded to fp16.
    pub round_steps: bool,
}

impl Sampler {
    /// Samples every channel bilinearly. `block(n)` gives the image that block `n` samples, and where each of
    /// its points lies: first vertically, then horizontally.
    pub fn run<T: Sample, P: Fn(usize) -> (Tap, Tap)>(
        &self,
        images: &[T],
        output: &mut [T],
        block: impl Fn(usize) -> (usize, P) + Sync,
    ) {
        let (from, to) = (self.channels * self.height * self.width, self.channels * self.points);
        if to == 0 {
            return;
        }
        let sample = |n: usize, output: &mut [T]| {
            let (image, place) = block(n);
            let image = &images[image * from..][..from];
            for point in 0..self.points {
                let (y, x) = place(point);
                for channel in 0..self.channels {
                    let plane = &image[channel * self.height * self.width..];
                    output[channel * self.points + point] = T::nearest(self.at(plane, y, x));
                }
            }
        };
        let work = output.len();
        for_each_chunk(output, to, work, sample);
    }

    fn at<T: Sample>(&self, plane: &[T], y: Tap, x: Tap) -> f32 {
        let get = |y: Option<usize>, x: Option<usize>| match (y, x) {
            (Some(y), Some(x)) => plane[y * self.width + x].value(),
            _ => self.around,
        };
        let row = |y| mix(get(y, x.low), get(y, x.high), x.weight, self.round_steps);
        mix(row(y.low), row(y.high), y.weight, self.round_steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(sampling: Sampling, input: usize, output: usize) -> Vec<f64> {
        let grid = Grid::new(sampling, input as f64 - 1.0, output);
        (0..output).map(|i| (grid.position(i) * 100.0).round() / 100.0).collect()
    }

    #[test]
    fn grids_follow_their_definitions() {
        for (sampling, output, expected) in [
            (Sampling::UnalignCorners, 5, &[0.0, 0.1, 0.5, 0.9, 1.0][..]),
            (Sampling::UnalignCorners, 6, &[0.0, 0.0, 0.33, 0.67, 1.0, 1.0]),
            (Sampling::StrictAlignCorners, 5, &[0.0, 0.25, 0.5, 0.75, 1.0]),
            (Sampling::StrictAlignCorners, 1, &[0.0]),
            (Sampling::AlignCorners, 6, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
            (Sampling::AlignCorners, 1, &[0.5]),
            (Sampling::Default, 5, &[0.0, 0.4, 0.8, 1.0, 1.0]),
            (Sampling::Default, 1, &[0.0]),
            (Sampling::OffsetCorners, 6, &[0.08, 0.25, 0.42, 0.58, 0.75, 0.92]),
            (Sampling::AlignCornersHalfPixel, 6, &[0.0, 0.0, 0.0, 0.2, 0.4, 0.6]),
        ] {
            assert_eq!(positions(sampling, 2, output), expected, "{sampling:?}");
        }
    }

    #[test]
    fn only_grids_that_change_nothing_are_identities() {
        let identity = |sampling, input: usize, output| {
            Grid::new(sampling, input as f64 - 1.0, output).is_identity(output)
        };
        for sampling in [Sampling::Default, Sampling::AlignCorners, Sampling::UnalignCorners] {
            assert!(identity(sampling, 7, 7) && identity(sampling, 1, 1));
            assert!(!identity(sampling, 7, 1) && !identity(sampling, 1, 7));
        }
        assert!(!identity(Sampling::OffsetCorners, 7, 7));
    }

    #[test]
    fn nearest_elements() {
        let sources = |rule: Nearest, input, output| {
            (0..output).map(|i| rule.source(i, input, output)).collect::<Vec<_>>()
        };
        assert_eq!(sources(Nearest::Start, 3, 2), [0, 1]);
        assert_eq!(sources(Nearest::Centre, 3, 2), [0, 2]);
        assert_eq!(sources(Nearest::Start, 2, 3), [0, 0, 1]);
        assert_eq!(sources(Nearest::Centre, 2, 3), [0, 1, 1]);
        let grid = Grid::new(Sampling::StrictAlignCorners, 2.0, 5);
        assert_eq!(sources(Nearest::Rounded(grid), 3, 5), [0, 1, 1, 2, 2]);
    }

    #[test]
    fn padding_repeats_or_mirrors() {
        let elements = |padding: Padding| (-3..6).map(|i| padding.element(i, 3)).collect::<Option<Vec<_>>>();
        assert_eq!(elements(Padding::Constant), None);
        assert_eq!(elements(Padding::Border).unwrap(), [0, 0, 0, 0, 1, 2, 2, 2, 2]);
        assert_eq!(elements(Padding::Reflection).unwrap(), [1, 2, 1, 0, 1, 2, 1, 0, 1]);
        assert_eq!(elements(Padding::Symmetric).unwrap(), [2, 1, 0, 0, 1, 2, 2, 1, 0]);
        assert_eq!(Padding::Reflection.element(i64::MAX, 1), Some(0));
        assert_eq!(Padding::Border.element(0, 0), None);
    }

    #[test]
    fn infinities_and_nan_stay_inside() {
        for position in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300] {
            for padding in [Padding::Border, Padding::Reflection, Padding::Symmetric] {
                assert!(Tap::linear(position, 3, padding).low.is_some_and(|i| i < 3));
            }
            assert_eq!(Tap::linear(position, 3, Padding::Constant), Tap::OUTSIDE);
        }
    }

    #[test]
    fn interpolation_keeps_infinities() {
        let (low, weight) = ([0, 0, 1], [0.0, 0.5, 0.0]);
        let axis = Axis { low: &low, weight: &weight, input: 2 };
        let mut output = [0.0; 6];
        interpolate(axis, 1, &[f32::NEG_INFINITY, f32::NEG_INFINITY, 1.0, 3.0], &mut output, false);
        assert_eq!(output, [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, 1.0, 2.0, 3.0]);
    }
}
