//! Statistics for tests, and what rounding without data loses by them.

use super::factor::Factor;
use super::statistics::Gram;
use crate::compress::linear::fit_values;
use crate::compress::precision::{Granularity, Linear};
use crate::compress::testing::normal;
use anemeter_kernels::kmeans_1d::WeightedSamples;
use anemeter_kernels::quantize::encode;
use anemeter_kernels::tensor::DType;

/// Statistics of inputs that depend on each other, some of them much larger than others.
pub(super) fn correlated(columns: usize, tokens: usize) -> Gram {
    let (noise, shared) = (normal(columns * tokens, 1), normal(8 * tokens, 2));
    let mixing = normal(8 * columns, 5);
    let mut inputs = noise;
    for (token, row) in inputs.chunks_mut(columns).enumerate() {
        for (column, input) in row.iter_mut().enumerate() {
            let common: f32 = (0..8).map(|i| shared[token * 8 + i] * mixing[i * columns + column]).sum();
            *input = (*input * 0.3 + common * 10.0) * if column % 17 == 0 { 6.0 } else { 1.0 };
        }
    }
    let mut gram = Gram::new(columns);
    gram.add(&inputs);
    gram
}

/// Squared error of the outputs for what is read back, in the units of a factor.
pub(super) fn loss(factor: &Factor, weights: &[f32], read: &[f32]) -> f64 {
    let errors: Vec<f32> = weights.iter().zip(read).map(|(weight, read)| weight - read).collect();
    let errors = factor.arrange(&errors);
    let gradients = factor.gradients(&errors);
    errors.iter().zip(gradients).map(|(e, g)| f64::from(*e) * f64::from(g)).sum()
}

/// What integers lose that are rounded each for itself.
pub(super) fn row_loss(factor: &Factor, weights: &[f32], linear: Linear) -> f64 {
    let columns = factor.columns();
    let size = match linear.granularity {
        Granularity::Tensor => weights.len(),
        Granularity::Channel => columns,
        Granularity::Block(size) => size,
    };
    let mut read = Vec::new();
    for block in weights.chunks(size) {
        let affine = fit_values(linear, DType::F16, block).unwrap();
        let mut codes = vec![0; block.len()];
        encode(block, &affine, &mut codes);
        let value = |&w: &f32| {
            (w / affine.scale).round_ties_even().clamp(affine.range.low, affine.range.high) * affine.scale
        };
        read.extend(block.iter().map(value));
    }
    loss(factor, weights, &read)
}

/// What palettes lose whose elements are rounded each for itself.
pub(super) fn palette_loss(factor: &Factor, weights: &[f32], group: usize, bits: u32) -> f64 {
    let mut read = Vec::new();
    for rows in weights.chunks(group * factor.columns()) {
        let mut sorted = rows.to_vec();
        sorted.sort_by(f32::total_cmp);
        let centroids = WeightedSamples::new(sorted.iter().map(|&value| (value, 1.0))).centroids(1 << bits);
        let nearest = |value: &f32| {
            centroids.iter().copied().min_by(|a, b| (a - value).abs().total_cmp(&(b - value).abs())).unwrap()
        };
        read.extend(rows.iter().map(nearest));
    }
    loss(factor, weights, &read)
}
