//! Hardware profiles as `configs/hardware_profiles.yaml` states them.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::keys;
use crate::config::{self, ConfigFileError};

/// The profiles that come with the program.
const BUILT_IN: &str = include_str!("../configs/hardware_profiles.yaml");
const BUILT_IN_PATH: &str = "configs/hardware_profiles.yaml";
const SCHEMA: &str = "anemeter.hardware_profiles/1";

/// All profiles.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiles {
    defaults: Defaults,
    profiles: Vec<Profile>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Document {
    /// `anemeter.hardware_profiles/1`.
    schema: String,
    /// What holds for a profile that does not say otherwise.
    defaults: Defaults,
    /// The profiles.
    profiles: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Defaults {
    /// The production mix of sequence lengths.
    production_mix: ProductionMix,
    /// What gates allow.
    gating: Gating,
    /// Which batches are for whom.
    batch_policy: BatchPolicy,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Its key in reports and baselines.
    key: String,
    /// The brand string of its processor.
    chip: String,
    /// Memory in GiB, if the profile is for one size only.
    memory_gb: Option<u64>,
    /// What the chip's memory can give.
    memory_bandwidth: Option<Bandwidth>,
    /// What the Neural Engine was seen to read.
    ane_bandwidth: Option<Bandwidth>,
    /// Sanity bands, where public figures exist.
    speed_targets: Option<SpeedTargets>,
    /// The production mix of sequence lengths; that of `defaults` if not given.
    production_mix: Option<ProductionMix>,
    /// What gates allow; that of `defaults` if not given.
    gating: Option<Gating>,
    /// Which batches are for whom; that of `defaults` if not given.
    batch_policy: Option<BatchPolicy>,
}

/// What is expected of a kind of machine, and what gates allow there.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its key in reports and baselines.
    pub key: String,
    /// The brand string of its processor; `None` if the profile was made for an unlisted machine.
    pub chip: Option<String>,
    /// Memory in GiB, if the profile is for one size only.
    pub memory_gb: Option<u64>,
    /// What the chip's memory can give.
    pub memory_bandwidth: Option<Bandwidth>,
    /// What the Neural Engine was seen to read.
    pub ane_bandwidth: Option<Bandwidth>,
    /// Sanity bands, where public figures exist.
    pub speed_targets: Option<SpeedTargets>,
    /// The production mix of sequence lengths.
    pub production_mix: ProductionMix,
    /// What gates allow.
    pub gating: Gating,
    /// Which batches are for whom.
    pub batch_policy: BatchPolicy,
}

/// A bandwidth and who says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Thousand million bytes per second.
    pub gb_per_s: f64,
    /// Who says so.
    pub source: String,
    /// For which variants it is lower.
    pub note: Option<String>,
}

/// How often each sequence length occurs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProductionMix {
    /// Sequence lengths.
    pub seq_lens: Vec<usize>,
    /// The share of each; together 1.
    pub weights: Vec<f64>,
}

impl ProductionMix {
    /// The share of a sequence length; zero for one that is not in the mix.
    pub fn weight(&self, seq_len: usize) -> f64 {
        let found = self.seq_lens.iter().position(|&known| known == seq_len);
        found.and_then(|index| self.weights.get(index)).copied().unwrap_or(0.0)
    }

    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        let (seq_lens, weights) = (self.seq_lens.len(), self.weights.len());
        let sum: f64 = self.weights.iter().sum();
        if seq_lens != weights || seq_lens == 0 {
            return Some(format!(
                "{seq_lens} sequence lengths and {weights} weights, expected as many of each"
            ));
        }
        if self.weights.iter().any(|weight| !(0.0..=1.0).contains(weight)) || (sum - 1.0).abs() > 1e-6 {
            return Some(format!("the weights are {:?}, expected shares that add up to 1", self.weights));
        }
        (!self.seq_lens.is_sorted_by(|a, b| a < b) || self.seq_lens[0] == 0)
            .then(|| format!("the sequence lengths are {:?}, expected increasing lengths", self.seq_lens))
    }
}

/// What gates allow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gating {
    /// Whether reports of other profiles may not be compared.
    pub require_same_profile: bool,
    /// Regressions beyond this fail.
    pub max_regression_pct: MaxRegression,
    /// Limits of Neural Engine residency.
    pub residency: Residency,
    /// The lowest cosine against the checkpoint.
    pub min_cosine: f64,
    /// The largest difference of F1 between sequence lengths.
    pub max_f1_drift: f64,
    /// The most tokens before the first action, at p95.
    pub max_ttfa_p95_tokens: u32,
}

/// Per cent by which a metric may get worse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxRegression {
    /// Time to the first token.
    pub ttft: f64,
    /// Tokens per second.
    pub tps: f64,
}

/// Limits of Neural Engine residency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Residency {
    /// Per cent by which it may drop against the baseline.
    pub max_drop_pct: f64,
    /// Per cent that it may not go below.
    pub floor_pct: f64,
}

/// Which batches are for whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchPolicy {
    /// The batch of interactive use.
    pub interactive: usize,
    /// Batches for offline work only.
    pub offline: Vec<usize>,
}

/// Sanity bands for one kind of model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeedTargets {
    /// The model in words.
    pub model: String,
    /// Its number of parameters.
    pub parameters: f64,
    /// The batch they hold for.
    pub batch: usize,
    /// What they are based on.
    pub basis: String,
    /// The bands.
    pub bands: Vec<Band>,
}

/// A range that a figure is expected in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// The metric; times in milliseconds, rates in tokens per second.
    pub metric: BandMetric,
    /// Its percentile.
    pub percentile: BandPercentile,
    /// It holds for contexts up to this length that no band with a smaller one covers.
    pub max_context: usize,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A metric that bands are stated for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BandMetric {
    /// Time to the first token.
    Ttft,
    /// Tokens per second.
    Tps,
}

/// A percentile that bands are stated for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BandPercentile {
    /// The median.
    P50,
    /// The slow tail.
    P95,
}

impl Profiles {
    /// The JSON schema of a file of profiles.
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(Document)
    }

    /// The profiles that come with the program.
    pub fn built_in() -> Result<Profiles, ConfigFileError> {
        Profiles::parse(BUILT_IN, Path::new(BUILT_IN_PATH))
    }

    /// Reads profiles from a file.
    pub fn read(path: &Path) -> Result<Profiles, ConfigFileError> {
        Profiles::check(config::load(path)?, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Profiles, ConfigFileError> {
        Profiles::check(config::parse(text, path)?, path)
    }

    fn check(document: Document, path: &Path) -> Result<Profiles, ConfigFileError> {
        let refuse = |problem: String| ConfigFileError::new(path, problem);
        let Document { schema, defaults, profiles } = document;
        if schema != SCHEMA {
            return Err(refuse(format!("schema is `{schema}`, expected `{SCHEMA}`")));
        }
        let profiles: Vec<Profile> = profiles.into_iter().map(|entry| entry.complete(&defaults)).collect();
        for (index, profile) in profiles.iter().enumerate() {
            let earlier = &profiles[..index];
            if let Some(problem) = profile.problem(earlier) {
                return Err(refuse(format!("profile `{}`: {problem}", profile.key)));
            }
        }
        match defaults.production_mix.problem() {
            Some(problem) => Err(refuse(format!("defaults: {problem}"))),
            None => Ok(Profiles { defaults, profiles }),
        }
    }

    /// The listed profiles in their order.
    pub fn listed(&self) -> &[Profile] {
        &self.profiles
    }

    /// The profile with a key; the defaults under that key if none is listed.
    pub fn of_key(&self, key: &str) -> Profile {
        let listed = self.profiles.iter().find(|profile| profile.key == key);
        listed.cloned().unwrap_or_else(|| self.unlisted(key.to_owned()))
    }

    /// A profile for an unlisted machine.
    pub(super) fn unlisted(&self, key: String) -> Profile {
        let Defaults { production_mix, gating, batch_policy } = self.defaults.clone();
        Profile {
            key,
            chip: None,
            memory_gb: None,
            memory_bandwidth: None,
            ane_bandwidth: None,
            speed_targets: None,
            production_mix,
            gating,
            batch_policy,
        }
    }
}

impl Entry {
    fn complete(self, defaults: &Defaults) -> Profile {
        Profile {
            key: self.key,
            chip: Some(self.chip),
            memory_gb: self.memory_gb,
            memory_bandwidth: self.memory_bandwidth,
            ane_bandwidth: self.ane_bandwidth,
            speed_targets: self.speed_targets,
            production_mix: self.production_mix.unwrap_or_else(|| defaults.production_mix.clone()),
            gating: self.gating.unwrap_or_else(|| defaults.gating.clone()),
            batch_policy: self.batch_policy.unwrap_or_else(|| defaults.batch_policy.clone()),
        }
    }
}

impl Profile {
    fn problem(&self, earlier: &[Profile]) -> Option<String> {
        if let Some(problem) = keys::problem(&self.key) {
            return Some(problem);
        }
        if earlier.iter().any(|other| other.key == self.key) {
            return Some("the key is there twice".to_owned());
        }
        let same = |other: &&Profile| (&other.chip, other.memory_gb) == (&self.chip, self.memory_gb);
        if let Some(other) = earlier.iter().find(same) {
            return Some(format!("matches the same machines as `{}`", other.key));
        }
        let bands = self.speed_targets.iter().flat_map(|targets| &targets.bands);
        for band in bands {
            if !(band.low > 0.0 && band.low < band.high && band.high.is_finite()) {
                return Some(format!("a band from {} to {}, expected a range above 0", band.low, band.high));
            }
        }
        self.production_mix.problem()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: (&str, &str)) -> String {
        assert!(BUILT_IN.contains(change.0), "{}", change.0);
        let text = BUILT_IN.replacen(change.0, change.1, 1);
        Profiles::parse(&text, Path::new("p.yaml")).unwrap_err().to_string()
    }

    #[test]
    fn the_built_in_profiles_hold_what_is_published() {
        let profiles = Profiles::built_in().unwrap();
        let find = |key: &str| profiles.listed().iter().find(|p| p.key == key).unwrap();
        let m1_max = find("apple-m1-max-64gb");
        assert_eq!((m1_max.memory_gb, m1_max.ane_bandwidth.as_ref().unwrap().gb_per_s), (Some(64), 55.0));
        let targets = m1_max.speed_targets.as_ref().unwrap();
        let ttft = &targets.bands[0];
        assert_eq!((ttft.metric, ttft.percentile), (BandMetric::Ttft, BandPercentile::P50));
        assert_eq!((ttft.low, ttft.high, ttft.max_context), (300.0, 500.0, 2048));
        assert!(find("apple-m2-pro").speed_targets.is_some() && find("apple-m3-pro").speed_targets.is_some());
        assert!(find("apple-m4").speed_targets.is_none(), "no figure is published for it");
        assert_eq!(find("apple-m5").production_mix.weights, [0.4, 0.4, 0.15, 0.05]);
        let gating = &find("apple-m5").gating;
        assert_eq!((gating.max_regression_pct.ttft, gating.max_regression_pct.tps), (5.0, 5.0));
        assert_eq!((gating.residency.max_drop_pct, gating.residency.floor_pct), (10.0, 80.0));
        assert_eq!((gating.min_cosine, gating.max_f1_drift, gating.max_ttfa_p95_tokens), (0.999, 0.01, 25));
    }

    #[test]
    fn a_key_finds_its_profile_or_the_defaults() {
        let profiles = Profiles::built_in().unwrap();
        assert!(profiles.of_key("apple-m1-max-64gb").speed_targets.is_some());
        let other = profiles.of_key("linux-x-2c");
        assert_eq!((other.key.as_str(), other.chip), ("linux-x-2c", None));
        assert_eq!(other.gating, profiles.defaults.gating);
    }

    #[test]
    fn every_bandwidth_has_a_source() {
        for profile in Profiles::built_in().unwrap().listed() {
            for bandwidth in profile.memory_bandwidth.iter().chain(&profile.ane_bandwidth) {
                assert!(bandwidth.gb_per_s > 0.0 && !bandwidth.source.is_empty(), "{}", profile.key);
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        let unknown = refused(("    memory_gb: 64", "    memory_gib: 64"));
        assert!(unknown.contains("unknown key `memory_gib`"), "{unknown}");
        let expected =
            "p.yaml: schema is `anemeter.hardware_profiles/9`, expected `anemeter.hardware_profiles/1`";
        assert_eq!(refused(("hardware_profiles/1", "hardware_profiles/9")), expected);
        assert!(refused(("0.15, 0.05", "0.15, 0.5")).contains("expected shares that add up to 1"));
        assert!(refused(("0.15, 0.05]", "0.15]")).contains("4 sequence lengths and 3 weights"));
        let twice = "p.yaml: profile `apple-m1`: the key is there twice";
        assert_eq!(refused(("key: apple-m2\n", "key: apple-m1\n")), twice);
        let same = refused(("chip: Apple M2\n", "chip: Apple M1\n"));
        assert!(same.contains("matches the same machines as `apple-m1`"));
        assert!(refused(("low: 300, high: 500", "low: 500, high: 300")).contains("a band from 500 to 300"));
        assert!(refused(("key: apple-m1\n", "key: linux-m1\n")).contains("begins with `linux-`"));
    }
}
