//! What is allowed: the limits of a hardware profile, and what `configs/gates.yaml` changes of them.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::verdict::{Measure, Statistic};
use super::waiver::Waiver;
use anemeter_base::config::{self, ConfigFileError};
use anemeter_base::hardware::{BatchPolicy, Profile, Residency, SpeedTargets};

/// The file that comes with the program.
const BUILT_IN: &str = include_str!("../configs/gates.yaml");
const BUILT_IN_PATH: &str = "configs/gates.yaml";
const SCHEMA: &str = "anemeter.gates/1";

/// What is allowed on one hardware profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The profile's key.
    pub profile: String,
    /// Whether reports of other profiles may not be compared.
    pub require_same_profile: bool,
    /// Per cent by which something may get worse.
    pub regression: Regression,
    /// Limits of Neural Engine residency.
    pub residency: Residency,
    /// The lowest cosine against the checkpoint.
    pub min_cosine: f64,
    /// The largest difference of F1 between sequence lengths.
    pub max_f1_drift: f64,
    /// The most tokens before the first action, at p95.
    pub max_ttfa_p95_tokens: f64,
    /// How much must have been measured.
    pub minimum: Minimum,
    /// How steady the machine must have been.
    pub steadiness: Steadiness,
    /// Sanity bands, where the profile has some.
    pub speed_targets: Option<SpeedTargets>,
    /// Which batches are for whom.
    pub batch_policy: BatchPolicy,
    /// What may be worse for a while.
    pub waivers: Vec<Waiver>,
}

/// Per cent by which something may get worse.
#[derive(Debug, Clone, PartialEq)]
pub struct Regression {
    /// Time to the first token.
    pub ttft: f64,
    /// Tokens per second.
    pub tps: f64,
    /// Time of a prediction.
    pub latency: f64,
    /// Load time.
    pub load: f64,
    /// Memory peak.
    pub memory_peak: f64,
    /// Package size.
    pub package_size: f64,
    /// Bytes of keys and values.
    pub kv_bytes: f64,
}

/// How much must have been measured before anything can pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Minimum {
    /// Completed launches of either side.
    pub launches: usize,
    /// Samples of a sequence length for its p95.
    pub tail_samples: usize,
}

/// How steady the machine must have been for a stored baseline to be of use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Steadiness {
    /// Per cent by which the canary may have shifted.
    pub canary_shift_pct: f64,
    /// Per cent by which launches may differ among themselves.
    pub dispersion_pct: f64,
}

impl Default for Steadiness {
    fn default() -> Steadiness {
        Steadiness { canary_shift_pct: 2.0, dispersion_pct: 3.0 }
    }
}

// Below six launches no bound is narrow enough to pass. Twenty samples: one is expected beyond a p95.
const MINIMUM: Minimum = Minimum { launches: 6, tail_samples: 20 };

/// Limits that hardware profiles do not state.
const LOAD_PCT: f64 = 25.0;
const MEMORY_PEAK_PCT: f64 = 10.0;
const PACKAGE_SIZE_PCT: f64 = 5.0;
const KV_BYTES_PCT: f64 = 0.0;

/// What a file of gates may change. Everything is optional.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatesFile {
    /// `anemeter.gates/1`.
    schema: String,
    /// Whether reports of other profiles may not be compared; the hardware profile's if not given.
    require_same_profile: Option<bool>,
    /// Per cent by which something may get worse.
    max_regression_pct: Option<RegressionFile>,
    /// Limits of Neural Engine residency; the hardware profile's if not given.
    residency: Option<Residency>,
    /// The lowest cosine against the checkpoint; the hardware profile's if not given.
    min_cosine: Option<f64>,
    /// The largest difference of F1 between sequence lengths; the hardware profile's if not given.
    max_f1_drift: Option<f64>,
    /// The most tokens before the first action, at p95; the hardware profile's if not given.
    max_ttfa_p95_tokens: Option<f64>,
    /// How much must have been measured before anything can pass.
    minimum: Option<Minimum>,
    /// How steady the machine must have been for a stored baseline to be of use.
    steadiness: Option<Steadiness>,
    /// What may be worse for a while.
    #[serde(default)]
    waivers: Vec<Waiver>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RegressionFile {
    /// Time to the first token; the hardware profile's if not given.
    ttft: Option<f64>,
    /// Tokens per second; the hardware profile's if not given.
    tps: Option<f64>,
    /// Time of a prediction; what the hardware profile allows the time to the first token if not given.
    latency: Option<f64>,
    /// Load time.
    load: Option<f64>,
    /// Memory peak.
    memory_peak: Option<f64>,
    /// Package size.
    package_size: Option<f64>,
    /// Bytes of keys and values.
    kv_bytes: Option<f64>,
}

impl GatesFile {
    /// How steady the machine must have been.
    pub fn steadiness(&self) -> Steadiness {
        self.steadiness.clone().unwrap_or_default()
    }

    /// The file that comes with the program.
    pub fn built_in() -> Result<GatesFile, ConfigFileError> {
        let path = Path::new(BUILT_IN_PATH);
        GatesFile::check(config::parse(BUILT_IN, path)?, path)
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<GatesFile, ConfigFileError> {
        GatesFile::check(config::load(path)?, path)
    }

    fn check(file: GatesFile, path: &Path) -> Result<GatesFile, ConfigFileError> {
        match file.problem() {
            Some(problem) => Err(ConfigFileError::new(path, problem)),
            None => Ok(file),
        }
    }

    fn problem(&self) -> Option<String> {
        if self.schema != SCHEMA {
            return Some(format!("schema is `{}`, expected `{SCHEMA}`", self.schema));
        }
        let regression = self.max_regression_pct.clone().unwrap_or_default();
        let residency = self.residency.as_ref();
        let steadiness = self.steadiness.as_ref();
        let numbers = [
            ("max_regression_pct.ttft", regression.ttft, 0.1, 1000.0),
            ("max_regression_pct.tps", regression.tps, 0.1, 60.0),
            ("max_regression_pct.latency", regression.latency, 0.1, 1000.0),
            ("max_regression_pct.load", regression.load, 0.1, 1000.0),
            ("max_regression_pct.memory_peak", regression.memory_peak, 0.1, 1000.0),
            ("max_regression_pct.package_size", regression.package_size, 0.0, 1000.0),
            ("max_regression_pct.kv_bytes", regression.kv_bytes, 0.0, 1000.0),
            ("residency.max_drop_pct", residency.map(|r| r.max_drop_pct), 0.0, 100.0),
            ("residency.floor_pct", residency.map(|r| r.floor_pct), 0.0, 100.0),
            ("min_cosine", self.min_cosine, -1.0, 1.0),
            ("max_f1_drift", self.max_f1_drift, 0.0, 1.0),
            ("max_ttfa_p95_tokens", self.max_ttfa_p95_tokens, 0.0, 1e6),
            ("minimum.launches", self.minimum.as_ref().map(|m| m.launches as f64), 6.0, 1000.0),
            ("minimum.tail_samples", self.minimum.as_ref().map(|m| m.tail_samples as f64), 20.0, 1e6),
            ("steadiness.canary_shift_pct", steadiness.map(|s| s.canary_shift_pct), 0.1, 100.0),
            ("steadiness.dispersion_pct", steadiness.map(|s| s.dispersion_pct), 0.1, 100.0),
        ];
        let outside = numbers.into_iter().find_map(|(key, value, low, high)| {
            let value = value.filter(|value| !(low..=high).contains(value))?;
            Some(format!("`{key}` is {value}, expected {low} to {high}"))
        });
        let silent = self.waivers.iter().find(|waiver| waiver.reason.trim().is_empty());
        outside.or(silent.map(|waiver| format!("the waiver for `{}` has no reason", waiver.metric.id())))
    }
}

impl Policy {
    /// What a profile allows, with the changes of a file.
    pub fn new(profile: &Profile, file: &GatesFile) -> Policy {
        let gating = &profile.gating;
        let changed = file.max_regression_pct.clone().unwrap_or_default();
        Policy {
            profile: profile.key.clone(),
            require_same_profile: file.require_same_profile.unwrap_or(gating.require_same_profile),
            regression: Regression {
                ttft: changed.ttft.unwrap_or(gating.max_regression_pct.ttft),
                tps: changed.tps.unwrap_or(gating.max_regression_pct.tps),
                latency: changed.latency.unwrap_or(gating.max_regression_pct.ttft),
                load: changed.load.unwrap_or(LOAD_PCT),
                memory_peak: changed.memory_peak.unwrap_or(MEMORY_PEAK_PCT),
                package_size: changed.package_size.unwrap_or(PACKAGE_SIZE_PCT),
                kv_bytes: changed.kv_bytes.unwrap_or(KV_BYTES_PCT),
            },
            residency: file.residency.clone().unwrap_or_else(|| gating.residency.clone()),
            min_cosine: file.min_cosine.unwrap_or(gating.min_cosine),
            max_f1_drift: file.max_f1_drift.unwrap_or(gating.max_f1_drift),
            max_ttfa_p95_tokens: file
                .max_ttfa_p95_tokens
                .unwrap_or_else(|| f64::from(gating.max_ttfa_p95_tokens)),
            minimum: file.minimum.clone().unwrap_or(MINIMUM),
            steadiness: file.steadiness(),
            speed_targets: profile.speed_targets.clone(),
            batch_policy: profile.batch_policy.clone(),
            waivers: file.waivers.clone(),
        }
    }

    /// Per cent by which a measure may get worse, for those that are compared launch by launch.
    pub(super) fn limit_pct(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Tps => self.regression.tps,
            Measure::Latency => self.regression.latency,
            Measure::Load => self.regression.load,
            Measure::MemoryPeak => self.regression.memory_peak,
            _ => self.regression.ttft,
        }
    }

    /// Per cent that a measure must be shown not to be worse by before it passes. Wider than the limit by what the
    /// statistic's noise asks for: with a limit of 5 % these are 8 %, 25 % and 15 %.
    pub(super) fn excluded_pct(&self, measure: Measure, statistic: Statistic) -> f64 {
        // Chosen by simulation (`cargo xtask gate-power`): narrower, and ordinary machines stay inconclusive.
        let factor = match (measure, statistic) {
            (Measure::Load | Measure::MemoryPeak, _) => 2.0,
            (_, Statistic::P50) => 1.6,
            (_, Statistic::P95) => 5.0,
            (_, Statistic::PooledTail) => 3.0,
        };
        self.limit_pct(measure) * factor
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use anemeter_base::hardware::Profiles;

    /// The policy of a listed profile.
    pub(crate) fn policy() -> Policy {
        let profiles = Profiles::built_in().unwrap();
        Policy::new(&profiles.of_key("apple-m1-max-64gb"), &GatesFile::built_in().unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_base::hardware::Profiles;

    fn read(text: &str) -> Result<GatesFile, ConfigFileError> {
        let path = Path::new("gates.yaml");
        config::parse(&format!("schema: anemeter.gates/1\n{text}"), path)
            .and_then(|file| GatesFile::check(file, path))
    }

    #[test]
    fn the_profile_decides_and_a_file_changes() {
        let policy = testing::policy();
        let Regression { ttft, tps, latency, .. } = policy.regression;
        assert_eq!((ttft, tps, latency), (5.0, 5.0, 5.0));
        assert_eq!((policy.residency.max_drop_pct, policy.residency.floor_pct), (10.0, 80.0));
        assert_eq!((policy.min_cosine, policy.max_f1_drift, policy.max_ttfa_p95_tokens), (0.999, 0.01, 25.0));
        assert_eq!(policy.excluded_pct(Measure::Ttft, Statistic::P50), 8.0);
        assert_eq!(policy.excluded_pct(Measure::Tps, Statistic::P95), 25.0);
        assert_eq!(policy.excluded_pct(Measure::Tps, Statistic::PooledTail), 15.0);
        let file = read("max_regression_pct: { ttft: 3, latency: 4, load: 50 }\nmin_cosine: 0.99\n").unwrap();
        let changed = Policy::new(&Profiles::built_in().unwrap().of_key("linux-x"), &file);
        let limits = &changed.regression;
        assert_eq!((limits.ttft, limits.tps, limits.latency, limits.load), (3.0, 5.0, 4.0, 50.0));
        assert_eq!((changed.min_cosine, changed.profile.as_str()), (0.99, "linux-x"));
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |text: &str| read(text).unwrap_err().to_string();
        assert!(refused("min_cosin: 1\n").contains("unknown key `min_cosin`"));
        let expected = "gates.yaml: `max_regression_pct.tps` is 100, expected 0.1 to 60";
        assert_eq!(refused("max_regression_pct: { tps: 100 }\n"), expected);
        assert!(refused("min_cosine: .nan\n").contains("`min_cosine` is NaN"));
        let few = refused("minimum: { launches: 2, tail_samples: 20 }\n");
        assert!(few.contains("`minimum.launches` is 2, expected 6"));
        let waiver = |reason: &str, day: &str| {
            refused(&format!("waivers: [{{ metric: ttft, reason: \"{reason}\", expires: {day} }}]\n"))
        };
        assert!(waiver("x", "2026-02-30").contains("`2026-02-30` is not a day such as 2026-12-31"));
        assert!(waiver(" ", "2026-02-20").contains("the waiver for `ttft` has no reason"));
        assert!(refused("waivers: [{ metric: ttft, reason: x }]\n").contains("missing field `expires`"));
        let other = config::parse("schema: anemeter.gates/2\n", Path::new("g.yaml"))
            .and_then(|file| GatesFile::check(file, Path::new("g.yaml")));
        assert!(other.unwrap_err().to_string().contains("expected `anemeter.gates/1`"));
    }
}
