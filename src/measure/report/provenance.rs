//! Where a report comes from: when, by what, of what, asked how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, Place};
use anemeter_base::engine::{Engine, EngineKind};
use anemeter_base::hardware::ProductionMix;
use anemeter_base::vocabulary::{
    ComputeUnits, KvForm, Numerics, Origin, RuntimeName, StateUse, WorkloadKind,
};

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
    /// The program that measured, if it was another one and its result was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_by: Option<String>,
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
    /// Who made the packages.
    #[serde(default, skip_serializing_if = "Origin::is_exported")]
    pub origin: Origin,
    /// Its architecture; empty if others made the packages.
    pub architecture: String,
    /// Its number of parameters; 0 if others made the packages.
    pub parameters: u64,
    /// Precision of the weights.
    pub precision: String,
    /// Form of the KV cache that was run; absent if functions were predicted one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_form: Option<KvForm>,
    /// Bytes of keys and values per token and sequence.
    pub kv_bytes_per_token: u64,
    /// Bytes of all packages.
    pub package_bytes: u64,
    /// Bytes of weights that one decoded token reads.
    pub weight_bytes_per_token: Option<u64>,
    /// Digests of the packages, in the order in which they run.
    pub package_digests: Vec<String>,
    /// Digest of the checkpoint; empty if others made the packages.
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
    /// What did the work, where the runtime only asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
}

impl RuntimeUse {
    /// Whether it was an interpreter that is for checking results, so that times say nothing of a device. Core AI that
    /// does not say what it is counts as one.
    pub fn is_for_checking(&self) -> bool {
        match &self.engine {
            Some(engine) => engine.kind == EngineKind::CpuInterpreter,
            None => self.name == RuntimeName::CoreAi,
        }
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Digest of what every launch does, defaults filled in; their number is not part of it.
    pub digest: String,
    /// What one request is.
    #[serde(default, skip_serializing_if = "is_generate")]
    pub kind: WorkloadKind,
    /// Sequence lengths, in order; none if functions were predicted one by one.
    pub seq_lens: Vec<usize>,
    /// Prompts after contexts of stated depths; absent if prompts fill the sequence lengths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depths: Option<DepthWorkload>,
    /// Functions at their shapes, if they were predicted one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
    /// Where the inputs of predictions come from; absent if text was generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<InputSource>,
    /// What a prediction finds in the states of its model; absent if text was generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<StateUse>,
    /// Sequences of one prediction.
    pub batch: usize,
    /// The production mix of sequence lengths.
    pub mix: ProductionMix,
    /// Launches asked for.
    pub launches: usize,
    /// Measured requests per sequence length and launch, or predictions per case and launch.
    pub requests_per_seq_len: usize,
    /// Rounds over all sequence lengths or cases that are discarded.
    pub warm_up_rounds: usize,
    /// Tokens to generate per request; 0 if functions were predicted one by one.
    pub generated_tokens: usize,
    /// Seed of the order of requests.
    pub seed: u64,
    /// The smallest step of the clock, in nanoseconds.
    pub clock_resolution_ns: Option<u64>,
}

/// Prompts of one size after contexts of some depths, as llama-bench asks for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DepthWorkload {
    /// Tokens of a prompt.
    pub prompt_tokens: usize,
    /// Tokens of context before it, in order. They are part of the prompt where packages cannot add one to a cache.
    pub depths: Vec<usize>,
    /// Lengths of the functions that run, in order.
    pub lengths: Vec<usize>,
}

impl Workload {
    /// Lengths of the functions that run, in order.
    pub fn lengths(&self) -> &[usize] {
        self.depths.as_ref().map_or(&self.seq_lens, |depths| &depths.lengths)
    }

    /// Where something is to be measured, in order.
    pub fn places(&self) -> Vec<Place> {
        let cases = self.cases.iter().map(|case| Place::Case(case.name.clone()));
        self.seq_lens.iter().map(|&seq_len| Place::SeqLen(seq_len)).chain(cases).collect()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_generate(kind: &WorkloadKind) -> bool {
    *kind == WorkloadKind::Generate
}

/// Where the inputs of predictions come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputSource {
    /// They are made up from the declared types.
    MadeUp {
        /// The seed.
        seed: u64,
        /// Integers that were asked for; others are small.
        ranges: Vec<InputRange>,
    },
    /// They are in a file.
    File {
        /// Its path, as it was given.
        path: String,
        /// Its digest.
        digest: String,
    },
}

/// Integers that are made up for an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputRange {
    /// Name of the input.
    pub input: String,
    /// The smallest.
    pub low: i32,
    /// The first beyond the largest.
    pub end: i32,
}
