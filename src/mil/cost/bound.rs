//! The memory bound, the slanted part of the roofline: predictions/s = bandwidth / bytes of weights, because every
//! weight of a function is read at each prediction. Activations are left out, so that it stays an upper limit where they
//! are cached.

use serde::Serialize;

use super::FunctionCost;

/// How fast a chip reads memory, and who says so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bandwidth {
    /// The chip.
    pub chip: String,
    /// Memory bandwidth in bytes per second.
    pub bytes_per_second: f64,
    /// Where the figure comes from.
    pub source: String,
}

/// What a chip's memory allows of a function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// The chip.
    pub chip: String,
    /// Bytes per second that the bound assumes.
    pub bytes_per_second: f64,
    /// Where that figure comes from.
    pub source: String,
    /// Predictions per second at most; nothing where no weight is read.
    pub predictions_per_second: Option<f64>,
    /// Tokens per second at most, where the inputs tell how many a prediction takes.
    pub tokens_per_second: Option<f64>,
}

/// Bounds of a function on chips.
pub fn bounds(cost: &FunctionCost, chips: &[Bandwidth]) -> Vec<Bound> {
    let bound = |chip: &Bandwidth| {
        let bytes = cost.total.weight_bytes;
        let predictions = (bytes > 0).then(|| chip.bytes_per_second / bytes as f64);
        Bound {
            chip: chip.chip.clone(),
            bytes_per_second: chip.bytes_per_second,
            source: chip.source.clone(),
            predictions_per_second: predictions,
            tokens_per_second: predictions.zip(cost.tokens).map(|(n, tokens)| n * tokens as f64),
        }
    };
    chips.iter().map(bound).collect()
}
