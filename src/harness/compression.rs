//! How near compressed weights are to what they were, taken from the description of a bundle.

use anemeter_convert::bundle::Manifest;
use anemeter_measure::report::CompressedWeight;

/// The compressed weights of a bundle; none if it is not compressed.
pub(super) fn compressed_weights(manifest: &Manifest) -> Vec<CompressedWeight> {
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
