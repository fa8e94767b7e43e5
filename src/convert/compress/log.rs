//! What compression did to each weight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What compression did to every weight.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Log {
    /// Every weight, in the order of the program.
    pub tensors: Vec<TensorLog>,
    /// All of them together.
    pub totals: Totals,
    /// What codes were chosen by; absent if by the weights alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

/// The text whose activations codes were chosen by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Tokens of it that were taken.
    pub tokens: usize,
    /// Its digest.
    pub digest: String,
}

/// What compression did to one weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TensorLog {
    /// Its name in the program.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// How it is stored now; `fp16` or `fp32` if that did not change, or how it came compressed.
    pub precision: String,
    /// Bits per element, with everything that belongs to it.
    pub bits: f64,
    /// Bytes of the weight as it was, uncompressed unless it came compressed.
    pub bytes_before: u64,
    /// Bytes of all its compressed parts.
    pub bytes_after: u64,
    /// Signal to noise in decibels; none if nothing is lost.
    pub snr_db: Option<f64>,
    /// Cosine between the elements before and after.
    pub cosine: f64,
    /// Whether codes were chosen by what the outputs lose on the calibration text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
}

/// Sums over all weights.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Weights that are stored otherwise now.
    pub compressed: usize,
    /// Weights that are as they were.
    pub kept: usize,
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes after.
    pub bytes_after: u64,
}

impl Totals {
    /// How many times smaller the weights are.
    pub fn ratio(&self) -> f64 {
        if self.bytes_after == 0 { 1.0 } else { self.bytes_before as f64 / self.bytes_after as f64 }
    }
}

/// What a signal-to-noise ratio lets one expect of a model whose weights were rounded without data. The limits are those
/// of SmolLM2-135M (docs/performance.md): perplexity +2 % at 32 dB, +22 % at 22 dB and more than twice as high at 20 dB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedLoss {
    /// Hardly any.
    Small,
    /// Tens of percent of perplexity.
    Noticeable,
    /// Several times the perplexity, or a model that says nothing of use.
    Severe,
}

impl ExpectedLoss {
    /// At so many decibels on average.
    pub fn at(mean_snr_db: f64) -> ExpectedLoss {
        match mean_snr_db {
            db if db >= 30.0 => ExpectedLoss::Small,
            db if db >= 21.0 => ExpectedLoss::Noticeable,
            _ => ExpectedLoss::Severe,
        }
    }
}

impl Log {
    /// The signal-to-noise ratio of the weights that lose something, averaged in decibels.
    pub fn mean_snr_db(&self) -> Option<f64> {
        let ratios: Vec<f64> = self.tensors.iter().filter_map(|tensor| tensor.snr_db).collect();
        (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
    }

    pub(super) fn push(&mut self, tensor: TensorLog, is_compressed: bool) {
        self.totals.bytes_before += tensor.bytes_before;
        self.totals.bytes_after += tensor.bytes_after;
        self.totals.compressed += usize::from(is_compressed);
        self.totals.kept += usize::from(!is_compressed);
        self.tensors.push(tensor);
    }

    /// Adds the weights of another program.
    pub fn extend(&mut self, other: Log) {
        self.tensors.extend(other.tensors);
        self.totals.compressed += other.totals.compressed;
        self.totals.kept += other.totals.kept;
        self.totals.bytes_before += other.totals.bytes_before;
        self.totals.bytes_after += other.totals.bytes_after;
    }

    /// The weights that lose most, the worst first.
    pub fn worst(&self, count: usize) -> Vec<&TensorLog> {
        let mut lossy: Vec<(&TensorLog, f64)> =
            self.tensors.iter().filter_map(|tensor| Some((tensor, tensor.snr_db?))).collect();
        lossy.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.name.cmp(&b.0.name)));
        lossy.into_iter().take(count).map(|(tensor, _)| tensor).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_expected_by_the_mean_of_what_loses_something() {
        let tensor = |snr_db| TensorLog {
            name: String::new(),
            shape: vec![1],
            precision: "lut4".to_owned(),
            bits: 4.0,
            bytes_before: 2,
            bytes_after: 1,
            snr_db,
            cosine: 1.0,
            weighted: false,
        };
        let mut log = Log::default();
        log.push(tensor(None), false);
        assert_eq!(log.mean_snr_db(), None);
        log.push(tensor(Some(17.0)), true);
        log.push(tensor(Some(21.0)), true);
        assert_eq!(log.mean_snr_db(), Some(19.0));
        let at = [41.5, 31.9, 21.6, 19.6, 18.9].map(ExpectedLoss::at);
        use ExpectedLoss::{Noticeable, Severe, Small};
        assert_eq!(at, [Small, Small, Noticeable, Severe, Severe], "int8, lut6, int4 and two of lut4");
    }
}
