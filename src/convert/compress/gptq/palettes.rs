//! Palettes by error feedback: k-means weighted by the pivots of the statistics, codes with errors carried on, then palettes
//! and codes in turns.

use std::sync::Arc;

use rayon::prelude::*;

use super::factor::Factor;
use super::feedback::{CHUNK, CodedRow, Grid, Rows};
use crate::compress::precision::Palette;
use crate::compress::weight::rounded;
use anemeter_kernels::kmeans_1d::WeightedSamples;
use anemeter_kernels::tensor::DType;

/// Rounds of refitting palettes and descending on codes.
const ROUNDS: usize = 2;

/// Palettes of more entries are not refitted: what is left to gain is small, and the equations are large.
const MOST_REFITTED: usize = 64;

/// What a palette's entries are kept from by their mean: equations of entries that are hardly used have no solution else.
const RIDGE: f64 = 1e-6;

/// Entries in ascending order, the last repeated where there are fewer distinct ones.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entries {
    pub(super) values: Arc<[f32]>,
    /// Where the next entry becomes the nearer one.
    middles: Arc<[f32]>,
}

impl Entries {
    fn new(values: Vec<f32>) -> Entries {
        let used = values.partition_point(|value| value < values.last().unwrap_or(&0.0)) + 1;
        let pairs = values[..used.min(values.len())].windows(2);
        let middles = pairs.map(|pair| f32::midpoint(pair[0], pair[1])).collect();
        Entries { values: values.into(), middles }
    }
}

impl Grid for Entries {
    fn nearest(&self, value: f32) -> (u8, f32) {
        let code = self.middles.partition_point(|&middle| middle < value);
        (code as u8, self.values[code])
    }
}

/// Encodes rows, of which every `group` share a palette and each was divided by one of `scales` if there are any.
pub(super) fn solve<'a>(
    factor: &'a Factor,
    weights: &[f32],
    (palette, group): (Palette, usize),
    scales: &[f32],
    dtype: DType,
) -> Rows<'a, Entries> {
    let columns = factor.columns().max(1);
    let count = 1 << palette.bits;
    let arranged = factor.arrange(weights);
    let scale = |row: usize| scales.get(row).copied().unwrap_or(1.0);
    let groups: Vec<Entries> = arranged
        .par_chunks(group * columns)
        .enumerate()
        .map(|(index, rows)| fit(factor, rows, count, dtype, |row| scale(index * group + row)))
        .collect();
    drop(arranged);
    let mut rows = Rows::new(factor, weights, |row| vec![groups[row / group].clone()]);
    rows.encode(CHUNK, |chunk, errors, coded| {
        let codes = &mut coded.codes[chunk.start..chunk.start + chunk.targets.len()];
        chunk.round(&coded.grids[0], errors, codes);
    });
    rows.descend(columns, |_, _, _, _| ());
    if count <= MOST_REFITTED && !factor.is_blind() {
        for _ in 0..ROUNDS {
            refit(&mut rows, group, dtype, scale);
            rows.descend(columns, |_, _, _, _| ());
        }
    }
    rows
}

/// Weighted k-means of the elements of some rows.
fn fit(factor: &Factor, rows: &[f32], count: usize, dtype: DType, scale: impl Fn(usize) -> f32) -> Entries {
    let columns = factor.columns().max(1);
    let weight = |at: usize| f64::from(factor.pivots[at % columns] * scale(at / columns).powi(2));
    let mut points: Vec<(f32, f64)> =
        rows.iter().enumerate().map(|(at, &value)| (value, weight(at).max(f64::MIN_POSITIVE))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 += next.1;
        }
        is_same
    });
    let mut centroids = WeightedSamples::new(points).centroids(count);
    centroids.iter_mut().for_each(|centroid| *centroid = rounded(dtype, *centroid));
    filled(centroids, count)
}

/// Entries in order, with the last in the place of those that are missing.
fn filled(mut entries: Vec<f32>, count: usize) -> Entries {
    entries.sort_by(f32::total_cmp);
    entries.dedup();
    let last = entries.last().copied().unwrap_or(0.0);
    entries.resize(count, last);
    Entries::new(entries)
}

/// Gives each group the palette that loses least with its codes as they are: least squares with the statistics between all
/// elements of a row.
fn refit(rows: &mut Rows<'_, Entries>, group: usize, dtype: DType, scale: impl Fn(usize) -> f32 + Sync) {
    let (factor, columns) = (rows.factor, rows.factor.columns().max(1));
    let weights = rows.weights.par_chunks(group * columns);
    let each = weights.zip(rows.errors.par_chunks_mut(group * columns)).zip(rows.coded.par_chunks_mut(group));
    each.enumerate().for_each(|(index, ((weights, errors), coded))| {
        let entries = &coded[0].grids[0];
        let mut equations = Equations::new(entries.values.len());
        for (row, (coded, weights)) in coded.iter().zip(weights.chunks(columns)).enumerate() {
            equations.add(factor, &coded.codes, weights, scale(index * group + row).powi(2));
        }
        let values = equations.solve(&entries.values);
        let found = filled(values.iter().map(|&value| rounded(dtype, value as f32)).collect(), values.len());
        let place = |value: &f64| found.nearest(rounded(dtype, *value as f32)).0;
        let renamed: Vec<u8> = values.iter().map(place).collect();
        let rows = coded.iter_mut().zip(weights.chunks(columns)).zip(errors.chunks_mut(columns));
        for ((CodedRow { codes, grids }, weights), errors) in rows {
            grids[0] = found.clone();
            for ((code, weight), error) in codes.iter_mut().zip(weights).zip(errors) {
                *code = renamed[usize::from(*code)];
                *error = weight - found.values[usize::from(*code)];
            }
        }
    });
}

/// The normal equations of a palette.
struct Equations {
    count: usize,
    /// Statistics between the elements of each pair of entries.
    matrix: Vec<f64>,
    /// Statistics between the elements of an entry and the weights.
    right: Vec<f64>,
}

impl Equations {
    fn new(count: usize) -> Equations {
        Equations { count, matrix: vec![0.0; count * count], right: vec![0.0; count] }
    }

    fn add(&mut self, factor: &Factor, codes: &[u8], weights: &[f32], share: f32) {
        let columns = codes.len();
        let mut sums = vec![0.0f32; self.count * columns];
        for (&code, line) in codes.iter().zip(factor.statistics.chunks(columns)) {
            let sums = &mut sums[usize::from(code) * columns..][..columns];
            sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += value);
        }
        for (entry, sums) in sums.chunks(columns).enumerate() {
            let row = &mut self.matrix[entry * self.count..][..self.count];
            for ((&code, &sum), &weight) in codes.iter().zip(sums).zip(weights) {
                row[usize::from(code)] += f64::from(share * sum);
                self.right[entry] += f64::from(share * sum) * f64::from(weight);
            }
        }
    }

    /// The solution; entries that nothing uses stay as they are.
    fn solve(mut self, before: &[f32]) -> Vec<f64> {
        let count = self.count;
        let mean = (0..count).map(|i| self.matrix[i * count + i]).sum::<f64>() / count as f64;
        for (i, &value) in before.iter().enumerate() {
            let ridge = RIDGE * mean + if self.matrix[i * count + i] > 0.0 { 0.0 } else { mean.max(1.0) };
            self.matrix[i * count + i] += ridge;
            self.right[i] += ridge * f64::from(value);
        }
        let found = eliminate(&mut self.matrix, &mut self.right, count);
        match found && self.right.iter().all(|value| value.is_finite()) {
            true => self.right,
            false => before.iter().map(|&value| f64::from(value)).collect(),
        }
    }
}

/// Solves symmetric positive definite equations in place; tells whether they are such.
fn eliminate(matrix: &mut [f64], right: &mut [f64], count: usize) -> bool {
    for pivot in 0..count {
        let diagonal = matrix[pivot * count + pivot];
        if diagonal.is_nan() || diagonal <= 0.0 {
            return false;
        }
        for row in pivot + 1..count {
            let factor = matrix[row * count + pivot] / diagonal;
            if factor != 0.0 {
                for column in pivot..count {
                    matrix[row * count + column] -= factor * matrix[pivot * count + column];
                }
                right[row] -= factor * right[pivot];
            }
        }
    }
    for row in (0..count).rev() {
        let known: f64 = (row + 1..count).map(|column| matrix[row * count + column] * right[column]).sum();
        right[row] = (right[row] - known) / matrix[row * count + row];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::testing::{correlated, palette_loss};
    use super::*;
    use crate::compress::testing::normal;

    #[test]
    fn the_nearest_entry_is_found_and_repeated_ones_are_one() {
        let entries = filled(vec![0.5, -1.0, 0.5, 2.0], 8);
        assert_eq!(entries.values[..], [-1.0, 0.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
        for (value, expected) in [(-9.0, 0), (-0.3, 0), (-0.2, 1), (1.2, 1), (1.3, 2), (9.0, 2)] {
            assert_eq!(entries.nearest(value).0, expected, "{value}");
        }
        assert_eq!(filled(Vec::new(), 2).nearest(3.0), (0, 0.0));
    }

    #[test]
    fn feedback_and_refitting_lose_less_of_the_output_than_rounding() {
        let (gram, weights) = (correlated(96, 600), normal(32 * 96, 4));
        let factor = Factor::new(&gram, 1, 0.0);
        for (bits, group) in [(2, 16), (4, 16), (4, 32), (6, 8), (8, 32)] {
            let palette = Palette { bits, group: Some(group), adapts: false, vector: 1, scaled: false };
            let rows = solve(&factor, &weights, (palette, group), &[], DType::F16);
            let (found, plain) = (rows.loss(), palette_loss(&factor, &weights, group, bits));
            assert!(found < 0.8 * plain, "lut{bits}, groups of {group}: {found} for {plain}");
            let read = rows.weights.iter().zip(&rows.errors).map(|(weight, error)| weight - error);
            let codes = rows
                .coded
                .iter()
                .flat_map(|row| row.codes.iter().map(|&c| row.grids[0].values[usize::from(c)]));
            assert!(read.zip(codes).all(|(read, value)| (read - value).abs() < 1e-5));
        }
    }
}
