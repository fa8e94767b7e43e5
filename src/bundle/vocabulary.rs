//! Words that exports and evaluations share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where keys and values of earlier tokens are kept.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum KvForm {
    /// With the caller: caches are inputs, new keys and values are outputs.
    Io,
    /// In a state of the model.
    State,
    /// Nowhere: each prediction sees the whole sequence.
    None,
}

/// Where token ids become vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Embeddings {
    /// With the caller; functions take `hidden`.
    Host,
    /// In the function `embed`, so that the other functions hold no gather.
    Function,
    /// In every function; they take `input_ids`.
    Graph,
}

/// Where Core ML may place operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
pub enum ComputeUnits {
    /// Wherever it likes.
    #[default]
    #[serde(rename = "all")]
    All,
    /// On the CPU only.
    #[serde(rename = "cpu")]
    Cpu,
    /// On the CPU and the GPU.
    #[serde(rename = "cpu+gpu")]
    #[value(name = "cpu+gpu")]
    CpuGpu,
    /// On the CPU and the Neural Engine.
    #[serde(rename = "cpu+ane")]
    #[value(name = "cpu+ane")]
    CpuAne,
}

impl std::fmt::Display for ComputeUnits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ComputeUnits::All => "all",
            ComputeUnits::Cpu => "cpu",
            ComputeUnits::CpuGpu => "cpu+gpu",
            ComputeUnits::CpuAne => "cpu+ane",
        })
    }
}

impl std::fmt::Display for KvForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KvForm::Io => "io",
            KvForm::State => "state",
            KvForm::None => "none",
        })
    }
}
