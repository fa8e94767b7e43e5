//! How far logits may be from those of exact sums where the interpreter rounds to fp16 after every addition.
//!
//! A sum of K products of random signs grows like a random walk: after k of them its variance is k, in units of one product.
//! Every rounding errs by a share of at most u = 2^-11, evenly spread, so with the variance u²/3 of what is rounded. The
//! errors of K additions and K products add up to u²/3 (K (K + 1) / 2 + K), a share of u² (K + 3) / 6 of the variance K of
//! the sum. Errors of operations that follow each other are independent, and their shares add. Logits that are off by a share
//! e² of their variance have the cosine 1 - e²/2 with the exact ones; three standard deviations of the error are allowed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The unit roundoff of fp16.
const ROUNDOFF: f64 = 1.0 / 2048.0;
/// Softmax turns an error of a score into one of its weight: the share is that of the score, times the score itself.
/// Scores of trained models are rarely beyond this.
const SCORE: f64 = 4.0;
/// Standard deviations that are allowed.
const DEVIATIONS: f64 = 3.0;

/// The sizes of a decoder that say how long its sums are.
#[derive(Deserialize)]
pub(super) struct Sizes {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    head_dim: usize,
}

impl Sizes {
    pub(super) fn read(checkpoint: &Path) -> Result<Sizes> {
        let path = checkpoint.join("config.json");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// The least cosine of logits after so many positions.
    pub(super) fn least_cosine(&self, positions: usize) -> f64 {
        let hidden = share(self.hidden_size);
        // Two norms; queries, keys and values; scores; their values; the output; gate and up; down.
        let attention = 2.0 * hidden + SCORE * SCORE * share(self.head_dim) + share(positions);
        let feed_forward = 2.0 * hidden + hidden + share(self.intermediate_size);
        let layers = self.num_hidden_layers as f64 * (attention + feed_forward);
        let ends = 2.0 * hidden;
        1.0 - DEVIATIONS * DEVIATIONS * (layers + ends) / 2.0
    }
}

/// The share of the variance of a sum of so many products that is error.
fn share(products: usize) -> f64 {
    ROUNDOFF * ROUNDOFF * (products as f64 + 3.0) / 6.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    /// The mean share of error of sums that are rounded after every step.
    fn measured(products: usize, sums: usize) -> f64 {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut error, mut signal) = (0.0, 0.0);
        for _ in 0..sums {
            let (mut exact, mut rounded) = (0.0f64, f16::ZERO);
            for _ in 0..products {
                let mut number = || f16::from_f32(2.0 * rng.f32() - 1.0);
                let (x, y) = (number(), number());
                exact += x.to_f64() * y.to_f64();
                rounded = f16::from_f32(rounded.to_f32() + f16::from_f32(x.to_f32() * y.to_f32()).to_f32());
            }
            error += (exact - rounded.to_f64()).powi(2);
            signal += exact.powi(2);
        }
        error / signal
    }

    #[test]
    fn the_share_of_error_is_that_of_sums_in_fp16() {
        for products in [16, 96, 256] {
            let ratio = measured(products, 2000) / share(products);
            // Rounding errs by less than u where a mantissa is not the smallest: about half of the variance on average.
            assert!((0.2..1.0).contains(&ratio), "{products}: {ratio}");
        }
    }

    #[test]
    fn longer_sums_allow_more() {
        let sizes =
            |hidden_size| Sizes { hidden_size, intermediate_size: 256, num_hidden_layers: 4, head_dim: 32 };
        let small = sizes(96).least_cosine(128);
        assert!(small > sizes(960).least_cosine(128) && small > sizes(96).least_cosine(4096));
        assert!((0.998..0.9995).contains(&small), "{small}");
    }
}
