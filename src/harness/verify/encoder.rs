//! Vectors of an encoder's packages against those of a reference, text by text and length by length.

use serde::Serialize;

use super::trace::Layers;
use super::{EncoderOracle, NonFinite, Thresholds, VerifyError};
use crate::encode::{EncoderDriver, EncoderTokens};
use anemeter_base::vocabulary::KvForm;
use anemeter_convert::bundle::EncoderOutput;
use anemeter_measure::stats::cosine;

/// The schema of [`EncoderReport`].
pub const ENCODER_SCHEMA: &str = "anemeter.verify-encoder/1";

/// What came of a verification of an encoder.
#[derive(Debug, Clone, Serialize)]
pub struct EncoderReport {
    /// Format and version.
    pub schema: &'static str,
    /// What computed the reference.
    pub reference: String,
    /// What was compared: embeddings, scores or hidden states.
    pub output: EncoderOutput,
    /// Whether everything is within its limit.
    pub passed: bool,
    /// Smallest cosine that passes.
    pub cosine: f64,
    /// Texts that were compared.
    pub texts: usize,
    /// Each length.
    pub lengths: Vec<EncoderLength>,
    /// Remarks on what was compared.
    pub remarks: Vec<String>,
    /// Hidden states layer by layer, if they were looked at.
    pub layers: Vec<Layers>,
}

/// Texts at one length.
#[derive(Debug, Clone, Serialize)]
pub struct EncoderLength {
    /// The length.
    pub seq_len: usize,
    /// The smallest cosine; absent if a number was not finite.
    pub cosine_min: Option<f64>,
    /// The largest difference as a share of the largest magnitude that was expected of the text, or of 1.
    pub error_max: Option<f64>,
    /// Numbers that were NaN.
    pub nan: usize,
    /// Numbers that were infinite.
    pub inf: usize,
    /// Each text in order.
    pub texts: Vec<EncoderTextResult>,
}

/// A text at one length.
#[derive(Debug, Clone, Serialize)]
pub struct EncoderTextResult {
    /// Tokens that were given.
    pub tokens: usize,
    /// Cosine to what was expected, the smallest where there are several vectors; absent if a number was not finite.
    pub cosine: Option<f64>,
    /// The largest difference, as in [`EncoderLength`].
    pub error: Option<f64>,
}

impl EncoderReport {
    /// Smallest cosine of all; absent if a number was not finite.
    pub fn cosine_min(&self) -> Option<f64> {
        self.lengths.iter().map(|of| of.cosine_min).reduce(|a, b| Some(a?.min(b?))).flatten()
    }

    /// What is beyond its limit, in words.
    pub fn failures(&self, limit: f64) -> Vec<String> {
        let mut failures = Vec::new();
        // Scores have no direction: they are judged by their size.
        let is_scores = self.output == EncoderOutput::Scores;
        for of in &self.lengths {
            let at = of.seq_len;
            match (of.cosine_min, of.error_max) {
                (None, _) | (_, None) => {
                    failures.push(format!("{at}: {} NaN and {} infinite numbers", of.nan, of.inf));
                }
                (Some(found), _) if !is_scores && found < self.cosine => {
                    failures.push(format!("{at}: cosine is {found:.7}, limit {}", self.cosine));
                }
                (_, Some(found)) if is_scores && found > limit => {
                    failures.push(format!("{at}: a score is off by {found:.5}, limit {limit}"));
                }
                _ => {}
            }
        }
        failures
    }
}

/// Compares packages with a reference at lengths of theirs; longer texts are cut for both.
pub fn compare_encoder(
    driver: &mut EncoderDriver,
    oracle: &dyn EncoderOracle,
    texts: &[EncoderTokens],
    (seq_lens, thresholds): (&[usize], &Thresholds),
) -> Result<EncoderReport, VerifyError> {
    if texts.is_empty() || seq_lens.is_empty() {
        return Err(VerifyError::Nothing("there is no text or no length"));
    }
    if let Some(&length) = seq_lens.iter().find(|length| !driver.lengths().contains(length)) {
        let known: Vec<String> = driver.lengths().iter().map(ToString::to_string).collect();
        return Err(VerifyError::NoLength { kv: KvForm::None, length, known: known.join(", ") });
    }
    let mut lengths = Vec::new();
    for &seq_len in seq_lens {
        let texts: Vec<EncoderTokens> = texts.iter().map(|text| cut(text, seq_len)).collect();
        let found = driver.encode(&texts, Some(seq_len))?;
        let mut of_length =
            EncoderLength { seq_len, cosine_min: None, error_max: None, nan: 0, inf: 0, texts: Vec::new() };
        for (text, found) in texts.iter().zip(&found) {
            let lost = NonFinite::of(&found.values);
            (of_length.nan, of_length.inf) = (of_length.nan + lost.nan, of_length.inf + lost.inf);
            let expected = oracle.encode(text)?;
            of_length.texts.push(compare(text.ids.len(), &expected, &found.values, found.width));
        }
        let all = |of: fn(&EncoderTextResult) -> Option<f64>, worse: fn(f64, f64) -> f64| {
            of_length.texts.iter().map(of).reduce(|a, b| Some(worse(a?, b?))).flatten()
        };
        let (cosine_min, error_max) = (all(|text| text.cosine, f64::min), all(|text| text.error, f64::max));
        lengths.push(EncoderLength { cosine_min, error_max, ..of_length });
    }
    let mut report = EncoderReport {
        schema: ENCODER_SCHEMA,
        reference: oracle.describe(),
        output: driver.output(),
        passed: false,
        cosine: thresholds.cosine,
        texts: texts.len(),
        lengths,
        remarks: Vec::new(),
        layers: Vec::new(),
    };
    report.passed = report.failures(thresholds.layer_error).is_empty();
    Ok(report)
}

fn cut(text: &EncoderTokens, seq_len: usize) -> EncoderTokens {
    let count = text.ids.len().min(seq_len);
    EncoderTokens { ids: text.ids[..count].to_vec(), types: text.types[..count].to_vec() }
}

fn compare(tokens: usize, expected: &[f32], found: &[f32], width: usize) -> EncoderTextResult {
    let lost = expected.len() != found.len() || NonFinite::of(expected).any() || NonFinite::of(found).any();
    if lost || expected.is_empty() {
        return EncoderTextResult { tokens, cosine: None, error: None };
    }
    let vectors = expected.chunks(width.max(1)).zip(found.chunks(width.max(1)));
    let least = vectors.map(|(expected, found)| cosine(expected, found)).fold(1.0, f64::min);
    let largest = expected.iter().map(|value| f64::from(value.abs())).fold(1.0, f64::max);
    let off = expected.iter().zip(found).map(|(&e, &f)| (f64::from(e) - f64::from(f)).abs());
    EncoderTextResult { tokens, cosine: Some(least), error: Some(off.fold(0.0, f64::max) / largest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_vector_of_a_text_counts() {
        let expected = [1.0, 0.0, 0.0, 2.0];
        let same = compare(2, &expected, &expected, 2);
        assert_eq!((same.cosine, same.error), (Some(1.0), Some(0.0)));
        let turned = compare(2, &expected, &[1.0, 0.0, 2.0, 0.0], 2);
        assert_eq!((turned.cosine, turned.error), (Some(0.0), Some(1.0)));
        for lost in [[f32::NAN, 0.0, 0.0, 2.0], [f32::INFINITY, 0.0, 0.0, 2.0]] {
            assert_eq!(compare(2, &expected, &lost, 2).cosine, None);
        }
        assert_eq!(compare(2, &expected, &[1.0], 2).cosine, None, "of another size");
    }

    #[test]
    fn what_is_beyond_a_limit_is_named() {
        let length = |cosine_min, error_max, nan| EncoderLength {
            seq_len: 8,
            cosine_min,
            error_max,
            nan,
            inf: 0,
            texts: Vec::new(),
        };
        let report = |output, of: EncoderLength| EncoderReport {
            schema: ENCODER_SCHEMA,
            reference: String::new(),
            output,
            passed: false,
            cosine: 0.9999,
            texts: 1,
            lengths: vec![of],
            remarks: Vec::new(),
            layers: Vec::new(),
        };
        let failures = |output, of| report(output, of).failures(0.02);
        assert!(failures(EncoderOutput::Embedding, length(Some(0.99995), Some(0.5), 0)).is_empty());
        let off = failures(EncoderOutput::Embedding, length(Some(0.99), Some(0.0), 0));
        assert_eq!(off, ["8: cosine is 0.9900000, limit 0.9999"]);
        let score = failures(EncoderOutput::Scores, length(Some(1.0), Some(0.05), 0));
        assert_eq!(score, ["8: a score is off by 0.05000, limit 0.02"]);
        let lost = report(EncoderOutput::Embedding, length(None, None, 3));
        assert_eq!(
            (lost.failures(0.02), lost.cosine_min()),
            (vec!["8: 3 NaN and 0 infinite numbers".to_owned()], None)
        );
    }
}
