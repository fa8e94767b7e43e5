//! What counts as right, and what may be lost: the defaults, and a configuration file that changes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use anemeter_measure::report::QualityLimits;

/// A configuration file of `verify`: what is right, and what is good enough.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// How near packages must be to what their weights say, whatever their precision.
    #[serde(default)]
    pub verify: Section,
    /// What they may lose against the checkpoint.
    #[serde(default)]
    pub quality: QualitySection,
}

/// What a configuration may change of the limits of quality.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QualitySection {
    /// Largest mean KL divergence of a position, in nats.
    pub kl: Option<f64>,
    /// Smallest share of positions with the same likeliest token.
    pub top1: Option<f64>,
    /// Smallest mean share of the five likeliest tokens.
    pub top5: Option<f64>,
    /// Largest increase of perplexity on a text, in per cent.
    pub perplexity_pct: Option<f64>,
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
#[error("`{section}.{key}` is {value}, expected {expected}")]
pub struct ThresholdError {
    section: &'static str,
    key: &'static str,
    value: f64,
    expected: &'static str,
}

impl Default for Thresholds {
    /// What rounding of fp16 explains. Compressed weights change nothing in it: packages are held to their own weights.
    fn default() -> Thresholds {
        Thresholds {
            cosine: 0.9999,
            kl: 0.01,
            top1: 0.9,
            top5: 0.9,
            max_abs: None,
            drift_cosine: 0.9999,
            layer_error: 0.02,
            ties_only: true,
        }
    }
}

/// A share that a configuration gives.
fn share(
    section: &'static str,
    key: &'static str,
    given: Option<f64>,
    to: &mut f64,
) -> Result<(), ThresholdError> {
    let Some(value) = given else { return Ok(()) };
    if !(0.0..=1.0).contains(&value) {
        return Err(ThresholdError { section, key, value, expected: "a number from 0 to 1" });
    }
    *to = value;
    Ok(())
}

/// A number that a configuration gives.
fn number(
    section: &'static str,
    key: &'static str,
    given: Option<f64>,
) -> Result<Option<f64>, ThresholdError> {
    match given.filter(|value| !value.is_finite() || *value < 0.0) {
        Some(value) => Err(ThresholdError { section, key, value, expected: "a number that is not negative" }),
        None => Ok(given),
    }
}

impl QualitySection {
    /// The limits of quality with what a configuration gives; an error names the key that makes no sense.
    pub fn limits(&self) -> Result<QualityLimits, ThresholdError> {
        const SECTION: &str = "quality";
        let mut limits = QualityLimits::default();
        share(SECTION, "top1", self.top1, &mut limits.top1)?;
        share(SECTION, "top5", self.top5, &mut limits.top5)?;
        limits.kl = number(SECTION, "kl", self.kl)?.unwrap_or(limits.kl);
        let perplexity = number(SECTION, "perplexity_pct", self.perplexity_pct)?;
        limits.perplexity_pct = perplexity.unwrap_or(limits.perplexity_pct);
        Ok(limits)
    }
}

impl Thresholds {
    /// Thresholds of a comparison with other weights: logits are finite, and the same at every length.
    pub fn of_other_weights(self) -> Thresholds {
        Thresholds {
            cosine: -1.0,
            kl: f64::INFINITY,
            top1: 0.0,
            top5: 0.0,
            max_abs: None,
            ties_only: false,
            ..self
        }
    }

    /// Thresholds of what is rounded after every operation, sums included.
    pub fn of_exact_rounding(self) -> Thresholds {
        const COSINE: f64 = 0.999;
        Thresholds { cosine: self.cosine.min(COSINE), drift_cosine: self.drift_cosine.min(COSINE), ..self }
    }

    /// Takes over what a configuration gives; an error names the key that makes no sense.
    pub fn with(mut self, section: &Section) -> Result<Thresholds, ThresholdError> {
        const SECTION: &str = "verify";
        share(SECTION, "cosine", section.cosine, &mut self.cosine)?;
        share(SECTION, "top1", section.top1, &mut self.top1)?;
        share(SECTION, "top5", section.top5, &mut self.top5)?;
        share(SECTION, "drift_cosine", section.drift_cosine, &mut self.drift_cosine)?;
        self.kl = number(SECTION, "kl", section.kl)?.unwrap_or(self.kl);
        self.layer_error = number(SECTION, "layer_error", section.layer_error)?.unwrap_or(self.layer_error);
        self.max_abs = number(SECTION, "max_abs", section.max_abs)?.or(self.max_abs);
        self.ties_only = section.ties_only.unwrap_or(self.ties_only);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Thresholds, String> {
        let file: File = serde_yaml::from_str(text).map_err(|e| e.to_string())?;
        Thresholds::default().with(&file.verify).map_err(|e| e.to_string())
    }

    fn limits(text: &str) -> Result<QualityLimits, String> {
        let file: File = serde_yaml::from_str(text).map_err(|e| e.to_string())?;
        file.quality.limits().map_err(|e| e.to_string())
    }

    #[test]
    fn configurations_change_what_they_name() {
        let changed = with("verify:\n  cosine: 0.5\n  max_abs: 2\n  ties_only: false\n").unwrap();
        let usual = Thresholds::default();
        assert_eq!(with("{}").unwrap(), usual);
        let expected = Thresholds { cosine: 0.5, max_abs: Some(2.0), ties_only: false, ..usual };
        assert_eq!(changed, expected);
        let changed = limits("quality: {kl: 0.02, perplexity_pct: 1}").unwrap();
        let expected = QualityLimits { kl: 0.02, perplexity_pct: 1.0, ..QualityLimits::default() };
        assert_eq!(changed, expected);
    }

    #[test]
    fn the_shipped_configuration_holds_the_defaults() {
        let text = include_str!("../configs/verify.yaml");
        assert_eq!(with(text).unwrap(), Thresholds::default());
        assert_eq!(limits(text).unwrap(), QualityLimits::default());
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
        let error = limits("quality: {perplexity_pct: -1}").unwrap_err();
        assert_eq!(error, "`quality.perplexity_pct` is -1, expected a number that is not negative");
        assert!(limits("quality: {top1: 80}").unwrap_err().contains("`quality.top1` is 80"));
    }
}
