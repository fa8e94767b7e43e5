//! Where a report comes from: when, by what, of what, asked how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use anemeter_base::hardware::ProductionMix;
use anemeter_base::vocabulary::{ComputeUnits, KvForm, Numerics, RuntimeName};

/// When, by what and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// When the benchmark began, in UTC, such as `2026-01-31T12:00:00Z`.
    pub created: String,
    /// The profile of the machine. Speeds of different profiles are never compared.
    pub hardware_profile_key: String,
    /// Whether that profile is a listed one.
    pub hardware_profile_listed: bool,
    /// Version of the program.
    pub tool_version: String,
    /// Digest of the program file.
    pub tool_digest: Option<String>,
    /// The commit of the folder it was called in, if that is in a repository.
    pub git: Option<Git>,
}

/// The commit that a benchmark ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Git {
    /// Its hash.
    pub commit: String,
    /// Whether files differed from it.
    pub dirty: bool,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The model's name.
    pub name: String,
    /// Its architecture.
    pub architecture: String,
    /// Its number of parameters.
    pub parameters: u64,
    /// Precision of the weights.
    pub precision: String,
    /// Form of the KV cache that was run.
    pub kv_form: KvForm,
    /// Bytes of keys and values per token and sequence.
    pub kv_bytes_per_token: u64,
    /// Bytes of all packages.
    pub package_bytes: u64,
    /// Bytes of weights that one decoded token reads.
    pub weight_bytes_per_token: Option<u64>,
    /// Digests of the packages, in the order in which they run.
    pub package_digests: Vec<String>,
    /// Digest of the checkpoint.
    pub checkpoint_digest: String,
    /// Digest of the tokenizer.
    pub tokenizer_digest: Option<String>,
}

impl Subject {
    /// Model and precision: what a model is called where exports of it at different precisions meet.
    pub fn label(&self) -> String {
        format!("{} ({})", self.name, self.precision)
    }
}

/// The runtime and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuntimeUse {
    /// Its name.
    pub name: RuntimeName,
    /// Where operations were allowed to run.
    pub compute_units: ComputeUnits,
    /// Threads, where the runtime has a say in it.
    pub threads: Option<usize>,
    /// How fp16 was computed, where the runtime has a say in it.
    pub numerics: Option<Numerics>,
    /// How much each prediction was slowed down on purpose, in percent. Such a report is never blessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowed_down_pct: Option<u16>,
    /// What the runtime did otherwise than asked, such as a fallback.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Digest of what every launch does, defaults filled in; their number is not part of it.
    pub digest: String,
    /// Sequence lengths, in order.
    pub seq_lens: Vec<usize>,
    /// Sequences of one prediction.
    pub batch: usize,
    /// The production mix of sequence lengths.
    pub mix: ProductionMix,
    /// Launches asked for.
    pub launches: usize,
    /// Measured requests per sequence length and launch.
    pub requests_per_seq_len: usize,
    /// Rounds over all sequence lengths that are discarded.
    pub warm_up_rounds: usize,
    /// Tokens to generate per request.
    pub generated_tokens: usize,
    /// Seed of the order of requests.
    pub seed: u64,
    /// The smallest step of the clock, in nanoseconds.
    pub clock_resolution_ns: Option<u64>,
}
