//! Integers with scales, by error feedback: scales are searched with the feedback of their own block, and refitted to all codes.

use super::factor::Factor;
use super::feedback::{CHUNK, Chunk, CodedRow, Grid, Rows};
use crate::compress::linear::{storable, symmetric_range};
use crate::compress::precision::{Granularity, Linear};
use anemeter_kernels::quantize::{Extent, Range, extent};
use anemeter_kernels::tensor::DType;

/// Clipping ratios that are tried for four bits, and for eight.
const FOUR: &[f32] =
    &[1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.79, 0.76, 0.73, 0.7, 0.66, 0.62, 0.58, 0.54, 0.5, 1.06];
const EIGHT: &[f32] = &[1.0, 0.98, 0.95, 0.9];

/// Rounds of descent on codes and refitting of scales.
const ROUNDS: usize = 2;

/// 1.5 x 2^23: adding it to a number of small magnitude and taking it off again rounds to the nearest integer.
const MAGIC: f32 = 12_582_912.0;

/// Integers of one block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Integers {
    pub(super) scale: f32,
    inverse: f32,
    range: Range,
    /// What is added to an integer to give its code.
    pub(super) zero: f32,
}

impl Integers {
    fn new(scale: f32, range: Range, zero: f32) -> Integers {
        Integers { scale, inverse: 1.0 / scale, range, zero }
    }

    fn integer(&self, code: u8) -> f32 {
        let value = if self.zero == 0.0 && self.range.low < 0.0 {
            // The four or eight low bits of a negative number in two's complement.
            let bits = if self.range.low < -8.0 { 8 } else { 4 };
            f32::from((code << (8 - bits)).cast_signed() >> (8 - bits))
        } else {
            f32::from(code)
        };
        value - self.zero
    }
}

impl Grid for Integers {
    fn nearest(&self, value: f32) -> (u8, f32) {
        let bounded = (value * self.inverse).max(self.range.low).min(self.range.high);
        let integer = (bounded + MAGIC) - MAGIC;
        (((integer + self.zero) as i32 & 0xff) as u8, integer * self.scale)
    }
}

/// Encodes rows. A row has a grid for each block of columns, in the order of the factor.
pub(super) fn solve<'a>(
    factor: &'a Factor,
    weights: &[f32],
    linear: Linear,
    dtype: DType,
) -> Rows<'a, Integers> {
    let columns = factor.columns().max(1);
    let block = block(linear, columns);
    let search = Search { linear, dtype };
    let is_searched = block <= CHUNK && linear.granularity != Granularity::Tensor;
    let whole = (linear.granularity == Granularity::Tensor).then(|| search.plain(weights, &[]));
    let arranged = factor.arrange(weights);
    let mut rows = Rows::new(factor, weights, |row| match whole {
        Some(grid) => vec![grid],
        None => {
            let row = arranged[row * columns..(row + 1) * columns].chunks(block);
            row.zip(factor.pivots.chunks(block))
                .map(|(values, pivots)| search.plain(values, pivots))
                .collect()
        }
    });
    rows.encode(chunk(block, columns), |chunk, errors, coded| {
        let CodedRow { codes, grids } = coded;
        let codes = &mut codes[chunk.start..chunk.start + chunk.targets.len()];
        let grid = &mut grids[chunk.start / block];
        if is_searched {
            *grid = search.with_feedback(chunk, errors, codes);
        }
        chunk.round(grid, errors, codes);
    });
    for round in 1..=ROUNDS {
        let refits = linear.granularity != Granularity::Tensor && round < ROUNDS;
        rows.descend(block, |factor, coded, errors, gradients| {
            if refits {
                refit(factor, coded, (errors, gradients), (block, dtype));
            }
        });
    }
    rows
}

/// Places that share a grid.
pub(super) fn block(linear: Linear, columns: usize) -> usize {
    match linear.granularity {
        Granularity::Block(size) => size.clamp(1, columns),
        Granularity::Channel | Granularity::Tensor => columns,
    }
}

/// Columns to encode at a time, all of one block.
fn chunk(block: usize, columns: usize) -> usize {
    match block {
        _ if block >= columns => CHUNK,
        _ => (1..=CHUNK.min(block)).rev().find(|&size| block.is_multiple_of(size)).unwrap_or(1),
    }
}

/// A search for scales.
struct Search {
    linear: Linear,
    dtype: DType,
}

impl Search {
    /// Grids for numbers of some extent, by clipping ratio.
    fn candidates(&self, extent: Extent) -> impl Iterator<Item = Integers> {
        let Linear { bits, symmetric, .. } = self.linear;
        let Extent { min, max, .. } = extent;
        let steps = ((1u32 << bits) - 1) as f32;
        let top = (steps - 1.0) / 2.0;
        let (scale, range, zero) = if symmetric {
            ((max / top).max(-min / (top + 1.0)), symmetric_range(bits), 0.0)
        } else {
            let scale = max / steps - min / steps;
            let zero = if scale > 0.0 { (-min / scale).round_ties_even().clamp(0.0, steps) } else { 0.0 };
            (scale, Range { low: -zero, high: steps - zero }, zero)
        };
        // All zero: any scale will do.
        let scale = if scale > 0.0 { scale } else { 1.0 };
        let ratios = if bits == 8 { EIGHT } else { FOUR };
        let dtype = self.dtype;
        ratios
            .iter()
            .map(move |ratio| Integers::new(storable(dtype, scale * ratio, extent, range), range, zero))
    }

    /// The grid with the least error, weighted by pivots if there are any, of numbers that are rounded each for itself.
    fn plain(&self, values: &[f32], pivots: &[f32]) -> Integers {
        let loss = |grid: &Integers| -> f64 {
            let weights = pivots.iter().copied().chain(std::iter::repeat(1.0));
            let squares = values.iter().zip(weights).map(|(&value, weight)| {
                let miss = value - grid.nearest(value).1;
                f64::from(weight * miss * miss)
            });
            squares.sum()
        };
        least(self.candidates(extent(values)), loss)
    }

    /// The grid with the least loss of a block whose columns are rounded to it with feedback.
    fn with_feedback(&self, chunk: &Chunk<'_>, errors: &mut [f32], codes: &mut [u8]) -> Integers {
        least(self.candidates(extent(chunk.targets)), |grid| chunk.round(grid, errors, codes))
    }
}

fn least(candidates: impl Iterator<Item = Integers>, mut loss: impl FnMut(&Integers) -> f64) -> Integers {
    let mut best: Option<(f64, Integers)> = None;
    for grid in candidates {
        let loss = loss(&grid);
        if best.is_none_or(|(least, _)| loss < least) {
            best = Some((loss, grid));
        }
    }
    best.expect("there are clipping ratios").1
}

/// Gives each block the scale that loses least with its codes as they are, block after block.
fn refit(
    factor: &Factor,
    coded: &mut CodedRow<Integers>,
    (errors, gradients): (&mut [f32], &mut [f32]),
    (block, dtype): (usize, DType),
) {
    let columns = errors.len();
    let mut moved = vec![0.0; columns];
    for (index, grid) in coded.grids.iter_mut().enumerate() {
        let places = index * block..columns.min((index + 1) * block);
        let integers: Vec<f32> = coded.codes[places.clone()].iter().map(|&code| grid.integer(code)).collect();
        moved.fill(0.0);
        for (&integer, place) in integers.iter().zip(places.clone()).filter(|(integer, _)| **integer != 0.0) {
            let line = &factor.statistics[place * columns..(place + 1) * columns];
            moved.iter_mut().zip(line).for_each(|(moved, value)| *moved += integer * value);
        }
        let dot = |values: &[f32]| -> f64 {
            integers.iter().zip(values).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let (slope, curvature) = (dot(&gradients[places.clone()]), dot(&moved[places.clone()]));
        if curvature <= 0.0 {
            continue;
        }
        let wanted = grid.scale + (slope / curvature) as f32;
        let reach = integers.iter().fold(0.0f32, |most, integer| most.max(integer.abs())) * wanted.abs();
        let extent = Extent { min: -reach, max: reach, is_finite: true };
        if !(wanted > 0.0 && reach.is_finite()) {
            continue;
        }
        let scale = storable(dtype, wanted, extent, grid.range);
        let step = f64::from(scale) - f64::from(grid.scale);
        if step == 0.0 || step * (step * curvature - 2.0 * slope) >= 0.0 {
            continue;
        }
        *grid = Integers::new(scale, grid.range, grid.zero);
        gradients.iter_mut().zip(&moved).for_each(|(gradient, moved)| *gradient -= step as f32 * moved);
        errors[places].iter_mut().zip(&integers).for_each(|(error, integer)| *error -= step as f32 * integer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{correlated, row_loss};
    use super::*;
    use crate::compress::testing::{linear, normal};

    #[test]
    fn codes_stand_for_what_is_read_back() {
        for (low, high, zero) in
            [(-8.0, 7.0, 0.0), (-128.0, 127.0, 0.0), (-3.0, 12.0, 3.0), (0.0, 255.0, 0.0)]
        {
            let grid = Integers::new(0.25, Range { low, high }, zero);
            for value in [-100.0, -2.1, -0.6, 0.0, 0.13, 0.7, 1.9, 100.0] {
                let (code, read) = grid.nearest(value);
                let code = if low == -8.0 { code & 15 } else { code };
                assert_eq!(grid.integer(code) * 0.25, read, "{value} in {low}..{high}");
            }
        }
    }

    #[test]
    fn feedback_and_refitting_lose_less_of_the_output_than_rounding() {
        let (gram, weights) = (correlated(96, 600), normal(24 * 96, 9));
        for kind in ["int4", "int4:block=16:asym", "int8", "int4:channel", "int4:tensor", "int8:block=48"] {
            let linear = linear(kind);
            let factor = Factor::new(&gram, block(linear, 96), 0.0);
            let rows = solve(&factor, &weights, linear, DType::F16);
            let (found, plain) = (rows.loss(), row_loss(&factor, &weights, linear));
            assert!(found < 0.8 * plain, "{kind}: {found} for {plain}");
        }
    }

    #[test]
    fn chunks_are_of_one_block() {
        let sizes = [(32, 576), (576, 576), (192, 576), (256, 1024), (7, 70)].map(|(b, n)| chunk(b, n));
        assert_eq!(sizes, [32, 128, 96, 128, 7]);
    }
}
