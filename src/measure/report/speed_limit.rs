//! How far decoding is from what memory allows: every token reads the weights once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bandwidth as a probe measured it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredBandwidth {
    /// Thousand million bytes per second, the best of several passes.
    pub gb_per_s: f64,
    /// Threads that read memory at once.
    pub threads: usize,
    /// Bytes of the buffer.
    pub buffer_bytes: u64,
}

/// The bound on tokens per second at one sequence length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeedLimit {
    /// The sequence length.
    pub seq_len: usize,
    /// Bytes of keys and values at this sequence length.
    pub kv_bytes: u64,
    /// Bytes of weights that a token reads.
    pub weight_bytes_per_token: u64,
    /// The bandwidth the bound follows from.
    pub gb_per_s: f64,
    /// Whose figure that is.
    pub bandwidth_source: String,
    /// Tokens per second if a token took only the time to read its weights.
    pub bound_tps: f64,
    /// Measured tokens per second (p50) as a share of the bound.
    pub share_of_bound: f64,
}

impl SpeedLimit {
    /// The bound for a sequence length, and how near a measured speed comes to it.
    pub fn new(seq_len: usize, cache: u64, weights: u64, bandwidth: (f64, String), tps: f64) -> SpeedLimit {
        let (gb_per_s, bandwidth_source) = bandwidth;
        let bound_tps = gb_per_s * 1e9 / weights.max(1) as f64;
        SpeedLimit {
            seq_len,
            kv_bytes: cache,
            weight_bytes_per_token: weights,
            gb_per_s,
            bandwidth_source,
            bound_tps,
            share_of_bound: tps / bound_tps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_its_weights_once() {
        let limit = SpeedLimit::new(512, 1, 250_000_000, (40.0, "probe".to_owned()), 80.0);
        assert_eq!((limit.bound_tps, limit.share_of_bound), (160.0, 0.5));
    }
}
