//! Rotary positions in their textbook form: angles in f64, the two halves of the rotated dimensions as pairs.

use std::f64::consts::TAU;

use candle_core::{Device, Result, Tensor};

use crate::settings::{Rope, Scaling};

/// Cosines and sines of all positions.
pub(super) struct Rotary {
    /// `[positions, dims / 2]`.
    cos: Tensor,
    sin: Tensor,
    dims: usize,
}

impl Rotary {
    pub(super) fn new(rope: &Rope, positions: usize) -> Result<Rotary> {
        let frequencies = frequencies(rope);
        let magnitude = match &rope.scaling {
            Scaling::Long { magnitude, .. } | Scaling::Yarn { magnitude, .. } => *magnitude,
            Scaling::None | Scaling::Linear(_) | Scaling::Llama3 { .. } => 1.0,
        };
        let table = |function: fn(f64) -> f64| {
            let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| f * p as f64));
            let values: Vec<f32> = angles.map(|angle| (function(angle) * magnitude) as f32).collect();
            Tensor::from_vec(values, (positions, frequencies.len()), &Device::Cpu)
        };
        Ok(Rotary { cos: table(f64::cos)?, sin: table(f64::sin)?, dims: rope.dims })
    }

    /// Rotates `[heads, tokens, head_dim]` from a position on.
    pub(super) fn apply(&self, x: &Tensor, offset: usize) -> Result<Tensor> {
        let (_, tokens, width) = x.dims3()?;
        let (cos, sin) = (self.cos.narrow(0, offset, tokens)?, self.sin.narrow(0, offset, tokens)?);
        let half = self.dims / 2;
        let (first, second) = (x.narrow(2, 0, half)?, x.narrow(2, half, half)?);
        let turned_first = (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?;
        let turned_second = (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?;
        let rest = x.narrow(2, self.dims, width - self.dims)?;
        Tensor::cat(&[turned_first, turned_second, rest], 2)
    }
}

fn frequencies(rope: &Rope) -> Vec<f64> {
    let dims = rope.dims as f64;
    let plain = |pair: usize| rope.base.powf(-2.0 * pair as f64 / dims);
    let scaled = |pair: usize| match &rope.scaling {
        Scaling::None => plain(pair),
        Scaling::Linear(factor) => plain(pair) / factor,
        Scaling::Long { short, .. } => plain(pair) / short.get(pair).copied().unwrap_or(1.0),
        Scaling::Llama3 { factor, low, high, original } => {
            let turns = original * plain(pair) / TAU;
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            plain(pair) * (kept + (1.0 - kept) / factor)
        }
        Scaling::Yarn { factor, fast, slow, original, truncate, .. } => {
            let pair_with = |turns: f64| dims * (original / (turns * TAU)).ln() / (2.0 * rope.base.ln());
            let (mut start, mut end) = (pair_with(*fast), pair_with(*slow));
            if *truncate {
                (start, end) = (start.floor(), end.ceil());
            }
            (start, end) = (start.max(0.0), end.min(dims - 1.0));
            let stretched = ((pair as f64 - start) / (end - start).max(0.001)).clamp(0.0, 1.0);
            plain(pair) * (1.0 - stretched + stretched / factor)
        }
    };
    (0..rope.dims / 2).map(scaled).collect()
}
