//! What is good enough, from a configuration or by the precision of a package.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A configuration file of `verify`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its only section.
    #[serde(default)]
    pub verify: Section,
}

/// What a configuration may change.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Smallest cosine at any position.
    pub cosine: Option<f64>,
    /// Largest KL divergence at any position, in nats.
    pub kl: Option<f64>,
    /// Smallest share of positions with the same likeliest token; ties count as the same.
    pub top1: Option<f64>,
    /// Smallest mean share of the five likeliest tokens.
    pub top5: Option<f64>,
    /// Largest difference of a logit; not limited if not given.
    pub max_abs: Option<f64>,
    /// Smallest cosine between the same tokens at two lengths.
    pub drift_cosine: Option<f64>,
    /// Relative error of a hidden state above which a layer counts as drifting; names a layer, fails nothing.
    pub layer_error: Option<f64>,
    /// Whether greedy tokens may differ only where the reference's choice is within rounding.
    pub ties_only: Option<bool>,
}

/// What is good enough. NaN and infinity never are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Thresholds {
    /// Smallest cosine at any position.
    pub cosine: f64,
    /// Largest KL divergence at any position, in nats.
    pub kl: f64,
    /// Smallest share of positions with the same likeliest token, of each form, length and phase; ties count as same.
    pub top1: f64,
    /// Smallest mean share of the five likeliest tokens.
    pub top5: f64,
    /// Largest difference of a logit; not limited where it is left out.
    pub max_abs: Option<f64>,
    /// Smallest cosine between the same tokens at two lengths.
    pub drift_cosine: f64,
    /// Relative error of a hidden state above which a layer counts as drifting. It names a layer, and fails nothing.
    pub layer_error: f64,
    /// Whether greedy tokens may differ only where the reference's choice is within rounding.
    pub ties_only: bool,
}

/// A threshold that makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`verify.{key}` is {value}, expected {expected}")]
pub struct ThresholdError {
    key: &'static str,
    value: f64,
    expected: &'static str,
}

impl Thresholds {
    /// What a package of the given precision should reach. Rounding of fp16 is all that `fp16` allows for; compressed
    /// weights are another model, for which only closeness can be asked.
    pub fn of_precision(precision: &str) -> Thresholds {
        match precision {
            "fp16" => Thresholds {
                cosine: 0.9999,
                kl: 0.01,
                top1: 0.9,
                top5: 0.9,
                max_abs: None,
                drift_cosine: 0.9999,
                layer_error: 0.02,
                ties_only: true,
            },
            _ => Thresholds {
                cosine: 0.999,
                kl: 0.1,
                top1: 0.8,
                top5: 0.8,
                max_abs: None,
                drift_cosine: 0.999,
                layer_error: 0.3,
                ties_only: false,
            },
        }
    }

    /// Takes over what a configuration gives; an error names the key that makes no sense.
    pub fn with(mut self, section: &Section) -> Result<Thresholds, ThresholdError> {
        let shares = [
            ("cosine", section.cosine, &mut self.cosine),
            ("top1", section.top1, &mut self.top1),
            ("top5", section.top5, &mut self.top5),
            ("drift_cosine", section.drift_cosine, &mut self.drift_cosine),
        ];
        for (key, given, threshold) in shares {
            let Some(value) = given else { continue };
            if !(0.0..=1.0).contains(&value) {
                return Err(ThresholdError { key, value, expected: "a number from 0 to 1" });
            }
            *threshold = value;
        }
        let numbers =
            [("kl", section.kl), ("max_abs", section.max_abs), ("layer_error", section.layer_error)];
        for (key, given) in numbers {
            if let Some(value) = given.filter(|value| !value.is_finite() || *value < 0.0) {
                return Err(ThresholdError { key, value, expected: "a number that is not negative" });
            }
        }
        self.kl = section.kl.unwrap_or(self.kl);
        self.layer_error = section.layer_error.unwrap_or(self.layer_error);
        self.max_abs = section.max_abs.or(self.max_abs);
        self.ties_only = section.ties_only.unwrap_or(self.ties_only);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Thresholds, String> {
        let file: File = serde_yaml::from_str(text).map_err(|e| e.to_string())?;
        Thresholds::of_precision("fp16").with(&file.verify).map_err(|e| e.to_string())
    }

    #[test]
    fn configurations_change_what_they_name() {
        let changed = with("verify:\n  cosine: 0.5\n  max_abs: 2\n  ties_only: false\n").unwrap();
        let fp16 = Thresholds::of_precision("fp16");
        assert_eq!(with("{}").unwrap(), fp16);
        let expected = Thresholds { cosine: 0.5, max_abs: Some(2.0), ties_only: false, ..fp16 };
        assert_eq!(changed, expected);
        assert!(Thresholds::of_precision("int4").cosine < expected.drift_cosine);
    }

    #[test]
    fn the_shipped_configuration_holds_the_defaults() {
        let text = include_str!("../configs/verify.yaml");
        assert_eq!(with(text).unwrap(), Thresholds::of_precision("fp16"));
    }

    #[test]
    fn nonsense_is_named() {
        for (text, message) in [
            ("verify: {cosine: 1.5}", "`verify.cosine` is 1.5, expected a number from 0 to 1"),
            ("verify: {kl: -1}", "`verify.kl` is -1, expected a number that is not negative"),
            ("verify: {max_abs: .nan}", "`verify.max_abs` is NaN"),
            ("verify: {cosin: 1}", "unknown field `cosin`"),
            ("thresholds: {}", "unknown field `thresholds`"),
        ] {
            let error = with(text).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
