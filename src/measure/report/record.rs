//! Records beside `export.json` of what was found out about a bundle: what `verify` and `eval` leave for `bench`,
//! `gate` and `bless`.
//!
//! A record names the packages that it is about by their digests, so that it cannot speak for others.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::quality_loss::QualityLoss;
use anemeter_base::advice::Remedy;
use anemeter_base::schema::{self, SchemaError};
use anemeter_base::vocabulary::KvForm;

/// A file beside `export.json` about the packages of a bundle.
pub trait Record: Serialize + DeserializeOwned {
    /// Name of the file.
    const FILE: &'static str;
    /// Format and version.
    const SCHEMA: &'static str;
    /// What it is.
    const WHAT: &'static str;
    /// What makes it anew.
    const REMEDY: Remedy;

    /// Digests of the packages that it is about, in the order in which they run.
    fn package_digests(&self) -> &[String];

    /// Reads a record.
    fn parse(text: &str) -> Result<Self, SchemaError> {
        schema::parse(text, Self::SCHEMA, Self::WHAT)
    }

    /// The content of the file.
    fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// What `verify` found: `verify.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// Format and version: `anemeter.verification/1`.
    pub schema: String,
    /// Version of the program that compared.
    pub tool_version: String,
    /// Digests of the packages, in the order in which they run.
    pub package_digests: Vec<String>,
    /// Digest of the checkpoint that they were compared with.
    pub checkpoint_digest: String,
    /// Whether it is the checkpoint that the bundle was exported from.
    pub checkpoint_is_the_exported_one: bool,
    /// Whether the packages are right: whether they compute what their weights say.
    pub passed: bool,
    /// Smallest cosine of logits at any position; absent if none was finite or it was not judged.
    pub cosine_min: Option<f64>,
    /// The smallest cosine that was right; absent if it was not judged, and in records of versions that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosine_limit: Option<f64>,
    /// Smallest cosine between the same tokens at two lengths; absent if there was one length only.
    pub drift_cosine_min: Option<f64>,
    /// Logits that are NaN.
    pub nan: usize,
    /// Logits that are infinite.
    pub inf: usize,
    /// What computed the reference.
    pub reference: String,
    /// How fp16 was computed.
    pub numerics: String,
    /// Cache forms and lengths that were compared.
    pub compared: Vec<VerifiedLengths>,
    /// Prompts given.
    pub prompts: usize,
    /// Positions compared over all forms and lengths.
    pub positions: usize,
    /// What was not right, in words.
    pub failures: Vec<String>,
    /// Why only quality was judged; absent if it was judged whether the packages are right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<String>,
    /// What the packages lose against the checkpoint; absent in records of versions that did not tell the two apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<QualityLoss>,
}

impl Verification {
    /// Whether the packages are right and as good as asked for.
    pub fn is_good(&self) -> bool {
        self.passed && self.quality.as_ref().is_none_or(QualityLoss::is_good)
    }

    /// Everything that is not right or not good enough, in words.
    pub fn problems(&self) -> Vec<String> {
        let quality = self.quality.as_ref().map(QualityLoss::failures).unwrap_or_default();
        self.failures.iter().cloned().chain(quality).collect()
    }
}

/// A cache form and the lengths of it that were compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifiedLengths {
    /// The form.
    pub kv: KvForm,
    /// Its lengths.
    pub seq_lens: Vec<usize>,
}

impl Record for Verification {
    const FILE: &'static str = "verify.json";
    const SCHEMA: &'static str = "anemeter.verification/1";
    const WHAT: &'static str = "the record of a verification";
    const REMEDY: Remedy = Remedy::VerifyAgain;

    fn package_digests(&self) -> &[String] {
        &self.package_digests
    }
}

/// How well a bundle calls tools and predicts a text, as `eval` found: `eval.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    /// Format and version: `anemeter.quality/1`.
    pub schema: String,
    /// Version of the program that ran the cases.
    pub tool_version: String,
    /// Digests of the packages, in the order in which they run.
    pub package_digests: Vec<String>,
    /// Digest of the file of cases; empty if no cases were run.
    pub cases_digest: String,
    /// Cases in it; 0 if none were run, and then nothing is known of calls.
    pub cases: usize,
    /// What executed the packages.
    pub runtime: String,
    /// Most tokens that were generated per case.
    pub max_tokens: usize,
    /// The cache form.
    pub kv: KvForm,
    /// Every length, shortest first.
    pub per_seq_len: Vec<SeqLenQuality>,
    /// The difference of F1 between its best and its worst length, over the cases that fit all lengths that any case
    /// fits; absent if there are fewer than two such lengths.
    pub f1_drift: Option<f64>,
    /// Median of the tokens to the first action over all cases and lengths; see [`SeqLenQuality::ttfa_p50`].
    pub ttfa_p50: Option<f64>,
    /// 95th percentile of the same.
    pub ttfa_p95: Option<f64>,
    /// How well it predicts a text; absent if none was scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<Perplexity>,
}

/// How well a bundle predicts a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Perplexity {
    /// Digest of the text.
    pub text_digest: String,
    /// What executed the packages.
    pub runtime: String,
    /// The cache form.
    pub kv: KvForm,
    /// Tokens of a window.
    pub window: usize,
    /// Tokens that were scored.
    pub tokens: usize,
    /// Their mean negative log-likelihood, in nats.
    pub nats_per_token: f64,
    /// The exponential of it.
    pub perplexity: f64,
}

/// How well a bundle calls tools at one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeqLenQuality {
    /// The length.
    pub seq_len: usize,
    /// Cases that fit it.
    pub cases: usize,
    /// Cases whose prompt is too long for it.
    pub too_long: usize,
    /// F1 of names and arguments together.
    pub f1: f64,
    /// F1 of names only.
    pub name_f1: f64,
    /// Share of cases whose calls are exactly the expected ones.
    pub exact: f64,
    /// Cases that expect a call and got no valid one.
    pub without_call: usize,
    /// Median of the tokens to the first action, over cases that expect one. Absent if no case expects one, or if the
    /// case at this rank has no valid call at all, which is worse than any limit.
    pub ttfa_p50: Option<f64>,
    /// 95th percentile of the same.
    pub ttfa_p95: Option<f64>,
}

impl Record for Quality {
    const FILE: &'static str = "eval.json";
    const SCHEMA: &'static str = "anemeter.quality/1";
    const WHAT: &'static str = "the record of an evaluation";
    const REMEDY: Remedy = Remedy::EvaluateAgain;

    fn package_digests(&self) -> &[String] {
        &self.package_digests
    }
}

impl Quality {
    /// Whether cases were run, so that something is known of calls.
    pub fn has_cases(&self) -> bool {
        self.cases > 0
    }

    /// Whether any case expects a call, so that there should be tokens to a first action.
    pub fn expects_calls(&self) -> bool {
        self.ttfa_p50.is_some() || self.per_seq_len.iter().any(|at| at.without_call > 0)
    }
}

#[cfg(any(test, feature = "testing"))]
pub(super) mod testing {
    //! Records of a bundle whose only package has the digest `xxh3:01`.

    use super::*;

    /// What a verification that passed leaves.
    pub fn verification() -> Verification {
        Verification {
            schema: Verification::SCHEMA.to_owned(),
            tool_version: "0.1.0".to_owned(),
            package_digests: vec!["xxh3:01".to_owned()],
            checkpoint_digest: "xxh3:02".to_owned(),
            checkpoint_is_the_exported_one: true,
            passed: true,
            cosine_min: Some(0.99995),
            cosine_limit: None,
            drift_cosine_min: None,
            nan: 0,
            inf: 0,
            reference: "llama (textbook, candle-core, f32)".to_owned(),
            numerics: "fast".to_owned(),
            compared: vec![VerifiedLengths { kv: KvForm::Io, seq_lens: vec![128] }],
            prompts: 8,
            positions: 256,
            failures: Vec::new(),
            not_judged: None,
            quality: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::verification;
    use super::*;

    #[test]
    fn records_survive_a_round_trip() {
        let record = verification();
        assert_eq!(Verification::parse(&record.to_json().unwrap()).unwrap(), record);
    }

    #[test]
    fn other_things_are_refused() {
        let other = Quality::parse(&verification().to_json().unwrap()).unwrap_err();
        let expected = "has the schema `anemeter.verification/1`; this version reads `anemeter.quality/1`";
        assert_eq!(other.to_string(), expected);
        for (text, expected) in [
            ("", "is not the record of a verification"),
            ("[]", "is not the record of a verification"),
            (r#"{"schema": "anemeter.verification/1"}"#, "missing field `tool_version`"),
        ] {
            let problem = Verification::parse(text).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn a_record_that_is_cut_short_is_refused() {
        let whole = verification().to_json().unwrap();
        let whole = whole.trim_end();
        assert!((0..whole.len()).all(|end| Verification::parse(&whole[..end]).is_err()));
    }
}
