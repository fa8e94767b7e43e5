//! Layer norm (Ba et al. 2016) and instance norm (Ulyanov et al. 2016) as [`standardize`], batch norm (Ioffe & Szegedy
//! 2015), L2 norm and local response norm (Krizhevsky et al. 2012), in place. With `round_steps` every step is rounded
//! to fp16.
//!
//! `y = (x - mean) / sqrt(variance + epsilon) * gamma + beta`, where mean and variance are those of the reduced axes.

use super::convert::round_f16;
use super::parallel;
use super::reduce::{Axes, add_up, rounded};
use super::rows::{self, MeanVar};
use super::simd::{LANES, Load, Op, Simd, Store, dispatch};

/// What an element of a row costs, in multiply-adds.
const ROW_COST: usize = 4;

/// A scale and an offset, each of which may be left out.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "the usual names")]
pub struct Affine<'a> {
    pub gamma: Option<&'a [f32]>,
    pub beta: Option<&'a [f32]>,
}

impl Affine<'_> {
    fn apply(&self, at: usize, value: f32, round: impl Fn(f32) -> f32) -> f32 {
        let scaled = self.gamma.map_or(value, |gamma| round(value * gamma[at]));
        self.beta.map_or(scaled, |beta| round(scaled + beta[at]))
    }
}

/// Which element of an [`Affine`] belongs to an element of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AffineIndex {
    /// The position among what is normalised together.
    Reduced,
    /// The channel, where results run over `[batch, channel]` of so many channels.
    Channel(usize),
}

/// Subtracts the mean over the reduced axes, divides by the standard deviation, and applies `affine`.
/// `statistics` is working memory, two per result.
pub fn standardize(
    axes: &Axes,
    data: &mut [f32],
    statistics: &mut [f64],
    epsilon: f32,
    (affine, index): (Affine<'_>, AffineIndex),
    round_steps: bool,
) {
    if let (Some(len), false) = (axes.rows(), round_steps) {
        return standardize_rows(len, data, epsilon, affine, index);
    }
    let round = |value: f64| rounded(value, round_steps);
    let count = axes.reduced() as f64;
    let (means, deviations) = statistics.split_at_mut(axes.kept());
    means.fill(0.0);
    add_up(axes, data, means, round_steps, Some(rows::sum), |x, _| f64::from(x));
    for mean in &mut *means {
        *mean = round(*mean / count);
    }
    deviations.fill(0.0);
    // A second pass over the distances: `E[x^2] - E[x]^2` cancels where the mean is large.
    add_up(axes, data, deviations, round_steps, None, |x, at| {
        let distance = round(f64::from(x) - means[at]);
        distance * distance
    });
    for deviation in &mut *deviations {
        *deviation = round(round(round(*deviation / count) + f64::from(epsilon)).sqrt());
    }
    axes.runs(|run| {
        for (i, value) in data[run.start..run.start + run.len].iter_mut().enumerate() {
            let kept = run.kept_at + if run.reduced { 0 } else { i };
            let at = match index {
                AffineIndex::Reduced => run.reduced_at + if run.reduced { i } else { 0 },
                AffineIndex::Channel(channels) => kept % channels,
            };
            let standard = round(round(f64::from(*value) - means[kept]) / deviations[kept]);
            *value = affine.apply(at, standard as f32, |value| round(f64::from(value)) as f32);
        }
    });
}

/// [`standardize`] of rows of `len` consecutive elements, where no step is rounded.
fn standardize_rows(len: usize, data: &mut [f32], epsilon: f32, affine: Affine<'_>, index: AffineIndex) {
    let pieces = parallel::pieces(data.len().saturating_mul(ROW_COST));
    parallel::parts(data, len.max(1), pieces, &|start, data| {
        for (i, row) in data.chunks_exact_mut(len.max(1)).enumerate() {
            let MeanVar { mean, variance } = rows::mean_var(row);
            let scale = 1.0 / (variance + f64::from(epsilon)).sqrt();
            match index {
                AffineIndex::Reduced => dispatch(Rescale::new(row, mean, scale).then(affine)),
                AffineIndex::Channel(channels) => {
                    let rescale = Rescale::new(row, mean, scale);
                    dispatch(rescale.then_channel(affine, (start / len + i) % channels));
                }
            }
        }
    });
}

/// Subtracts a number from consecutive elements, multiplies by another, and applies an affine function.
struct Rescale<'a> {
    data: &'a mut [f32],
    /// What is subtracted, as a sum of two.
    mean: [f32; 2],
    scale: f32,
    offset: f32,
    affine: Affine<'a>,
}

impl<'a> Rescale<'a> {
    fn new(data: &'a mut [f32], mean: f64, scale: f64) -> Rescale<'a> {
        // The mean as a sum of two f32: one alone would cost a row with a large mean and a small variance its digits.
        let high = mean as f32;
        let mean = [high, (mean - f64::from(high)) as f32];
        Rescale { data, mean, scale: scale as f32, offset: 0.0, affine: Affine::default() }
    }

    /// Applies one element of `affine` per element of the data.
    fn then(self, affine: Affine<'a>) -> Rescale<'a> {
        Rescale { affine, ..self }
    }

    /// Applies one element of `affine` to all.
    fn then_channel(self, affine: Affine<'_>, channel: usize) -> Rescale<'a> {
        let scale = self.scale * affine.gamma.map_or(1.0, |gamma| gamma[channel]);
        Rescale { scale, offset: affine.beta.map_or(0.0, |beta| beta[channel]), ..self }
    }
}

impl Op for Rescale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [high, low] = self.mean.map(|mean| s.splat(mean));
        let (scale, offset) = (s.splat(self.scale), s.splat(self.offset));
        for (i, x) in self.data.chunks_mut(LANES).enumerate() {
            let distance = s.sub(s.sub(f32::load_some(s, x), high), low);
            let mut y = s.mul_add(distance, scale, offset);
            if let Some(gamma) = self.affine.gamma {
                y = s.mul(y, f32::load_some(s, &gamma[i * LANES..]));
            }
            if let Some(beta) = self.affine.beta {
                y = s.add(y, f32::load_some(s, &beta[i * LANES..]));
            }
            f32::store_some(s, y, x);
        }
    }
}

/// Per-channel statistics of [`batch_norm`].
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the usual names")]
pub struct ChannelStatistics<'a> {
    pub mean: &'a [f32],
    pub variance: &'a [f32],
    pub epsilon: f32,
}

/// Normalises `[batch, channel, inner]` data with given statistics.
pub fn batch_norm(
    data: &mut [f32],
    inner: usize,
    statistics: ChannelStatistics<'_>,
    affine: Affine<'_>,
    round_steps: bool,
) {
    let ChannelStatistics { mean, variance, epsilon } = statistics;
    for (i, run) in data.chunks_mut(inner.max(1)).enumerate() {
        let channel = i % mean.len();
        if !round_steps {
            let scale = 1.0 / (f64::from(variance[channel]) + f64::from(epsilon)).sqrt();
            let rescale = Rescale::new(run, f64::from(mean[channel]), scale);
            dispatch(rescale.then_channel(affine, channel));
            continue;
        }
        let deviation = round_f16(round_f16(variance[channel] + epsilon).sqrt());
        for value in run {
            let standard = round_f16(round_f16(*value - mean[channel]) / deviation);
            *value = affine.apply(channel, standard, round_f16);
        }
    }
}

/// Divides by the square root of the sum of squares over the reduced axes plus `epsilon`. `sums` is working
/// memory, one per result.
pub fn l2_norm(axes: &Axes, data: &mut [f32], sums: &mut [f64], epsilon: f32, round_steps: bool) {
    let round = |value: f64| rounded(value, round_steps);
    sums.fill(0.0);
    add_up(axes, data, sums, round_steps, Some(rows::sum_squares), |x, _| f64::from(x) * f64::from(x));
    for sum in &mut *sums {
        *sum = round(round(*sum + f64::from(epsilon)).sqrt());
    }
    axes.runs(|run| {
        for (i, value) in data[run.start..run.start + run.len].iter_mut().enumerate() {
            let kept = run.kept_at + if run.reduced { 0 } else { i };
            *value = (f64::from(*value) / sums[kept]) as f32;
        }
    });
}

/// The constants of [`local_response_norm`].
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the usual names")]
pub struct LocalResponse {
    pub size: usize,
    pub alpha: f32,
    pub beta: f32,
    pub k: f32,
}

/// Divides each element of `[batch, channels, inner]` data by a power of the mean square of its `size`
/// neighbours in channel direction: `size / 2` before it, `(size - 1) / 2` after it, zeros beyond the edges.
pub fn local_response_norm(
    x: &[f32],
    out: &mut [f32],
    channels: usize,
    inner: usize,
    constants: LocalResponse,
    round_steps: bool,
) {
    let LocalResponse { size, alpha, beta, k } = constants;
    if channels == 0 || inner == 0 {
        return;
    }
    let round = |value: f32| if round_steps { round_f16(value) } else { value };
    let scale = alpha / size as f32;
    let blocks = x.chunks_exact(channels * inner).zip(out.chunks_exact_mut(channels * inner));
    for (x, out) in blocks {
        for channel in 0..channels {
            let first = channel.saturating_sub(size / 2);
            let last = channel.saturating_add(size.saturating_sub(1) / 2).min(channels - 1);
            for i in 0..inner {
                let squares = (first..=last).map(|near| x[near * inner + i]).map(|near| round(near * near));
                let sum = squares.fold(0.0, |sum, square| round(sum + square));
                let base = round(k + round(scale * sum));
                out[channel * inner + i] = x[channel * inner + i] / round(base.powf(beta));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standardizes_along_any_axes() {
        let mut rows = [1.0, 3.0, 10.0, 30.0];
        let axes = Axes::new(&[2, 2], |axis| axis == 1);
        let affine = Affine { gamma: Some(&[2.0, 1.0]), beta: Some(&[0.0, 0.5]) };
        standardize(&axes, &mut rows, &mut [0.0; 4], 0.0, (affine, AffineIndex::Reduced), false);
        assert_eq!(rows, [-2.0, 1.5, -2.0, 1.5]);

        let mut columns = [1.0, 10.0, 3.0, 30.0];
        let axes = Axes::new(&[2, 2], |axis| axis == 0);
        standardize(&axes, &mut columns, &mut [0.0; 4], 0.0, (affine, AffineIndex::Channel(2)), false);
        assert_eq!(columns, [-2.0, -0.5, 2.0, 1.5]);
    }

    #[test]
    fn rows_are_standardized_as_precisely_as_columns() {
        let (rows, len) = (3, 1037);
        let mut data: Vec<f32> = (0..rows * len).map(|i| 1000.0 + (i * 37 % 101) as f32 / 50.0).collect();
        let mut columns: Vec<f32> = (0..rows * len).map(|i| data[i % rows * len + i / rows]).collect();
        let ramp: Vec<f32> = (0..len).map(|i| i as f32 / 500.0).collect();
        let affine = (Affine { gamma: Some(&ramp), beta: Some(&ramp) }, AffineIndex::Reduced);
        let statistics = &mut [0.0; 6];
        standardize(&Axes::new(&[rows, len], |axis| axis == 1), &mut data, statistics, 1e-5, affine, false);
        standardize(
            &Axes::new(&[len, rows], |axis| axis == 0),
            &mut columns,
            statistics,
            1e-5,
            affine,
            false,
        );
        for (i, wide) in columns.iter().enumerate() {
            let found = data[i % rows * len + i / rows];
            assert!((found - wide).abs() <= 4e-6, "{i}: {found} for {wide}");
        }
    }

    #[test]
    fn batches_are_normalized_by_channel() {
        let statistics = ChannelStatistics { mean: &[1.0, 2.0], variance: &[4.0, 0.25], epsilon: 0.0 };
        let affine = Affine { gamma: Some(&[1.0, 3.0]), beta: Some(&[0.0, 10.0]) };
        let mut data = [1.0, 5.0, 2.0, 3.0];
        batch_norm(&mut data, 2, statistics, affine, false);
        assert_eq!(data, [0.0, 2.0, 10.0, 16.0]);
    }

    #[test]
    fn fp16_steps_lose_what_fp16_cannot_hold() {
        let axes = Axes::new(&[2], |_| true);
        let mut data = [300.0, -300.0];
        let affine = (Affine::default(), AffineIndex::Reduced);
        standardize(&axes, &mut data, &mut [0.0; 2], 0.0, affine, true);
        assert_eq!(data, [0.0, 0.0]);
    }

    #[test]
    fn an_even_window_reaches_one_channel_further_back() {
        let constants = LocalResponse { size: 2, alpha: 2.0, beta: 1.0, k: 1.0 };
        let mut out = [0.0; 3];
        local_response_norm(&[1.0, 2.0, 3.0], &mut out, 3, 1, constants, false);
        assert_eq!(out, [0.5, 2.0 / 6.0, 3.0 / 14.0]);
    }
}
