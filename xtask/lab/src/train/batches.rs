//! Stretches of the text, chosen by a seed.

use anyhow::Result;
use candle_core::{Device, Tensor};

const ROWS: usize = 4;

pub(super) struct Batches {
    ids: Vec<u32>,
    length: usize,
    random: fastrand::Rng,
}

impl Batches {
    pub(super) fn new(ids: Vec<u32>, length: usize, seed: u64) -> Batches {
        Batches { ids, length, random: fastrand::Rng::with_seed(seed) }
    }

    /// Tokens, and the token that follows each: both `[rows, length]`.
    pub(super) fn next(&mut self, device: &Device) -> Result<(Tensor, Tensor)> {
        let starts: Vec<usize> =
            (0..ROWS).map(|_| self.random.usize(0..self.ids.len() - self.length)).collect();
        let rows = |shift: usize| -> Result<Tensor> {
            let ids: Vec<u32> =
                starts.iter().flat_map(|start| &self.ids[start + shift..][..self.length]).copied().collect();
            Ok(Tensor::from_vec(ids, (ROWS, self.length), device)?)
        };
        Ok((rows(0)?, rows(1)?))
    }
}
