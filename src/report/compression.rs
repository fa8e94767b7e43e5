//! How near compressed weights are to what they were, taken from the description of a bundle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bundle::Manifest;

/// A weight that is stored in fewer bits than it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompressedWeight {
    /// Its name in the program.
    pub name: String,
    /// Its layer; absent for embedding and head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<usize>,
    /// Bits per element, with everything that belongs to it.
    pub bits: f64,
    /// Signal to noise in decibels; absent if nothing is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snr_db: Option<f64>,
}

/// The compressed weights of a bundle; none if it is not compressed.
pub fn compressed_weights(manifest: &Manifest) -> Vec<CompressedWeight> {
    let weights = manifest.compression.iter().flat_map(|log| &log.tensors);
    let compressed = weights.filter(|weight| !matches!(weight.precision.as_str(), "fp16" | "fp32"));
    let of = compressed.map(|weight| CompressedWeight {
        name: weight.name.clone(),
        layer: layer_of(&weight.name),
        bits: rounded(weight.bits),
        snr_db: weight.snr_db.filter(|snr| snr.is_finite()).map(rounded),
    });
    of.collect()
}

/// The number in names such as `layers_3_mlp_up_weight`.
fn layer_of(name: &str) -> Option<usize> {
    let (number, _) = name.strip_prefix("layers_")?.split_once('_')?;
    number.parse().ok()
}

/// As many digits as say something.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_read_from_names() {
        assert_eq!(layer_of("layers_12_attention_query_weight"), Some(12));
        for name in ["embedding_weight", "layers_", "layers_x_y", "layers_3"] {
            assert_eq!(layer_of(name), None, "{name}");
        }
        assert_eq!(rounded(20.437_51), 20.438);
    }
}
