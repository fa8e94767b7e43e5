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

impl KvForm {
    /// Whether a function of a package is one that this form runs.
    pub fn runs(self, function: &str) -> bool {
        match self {
            KvForm::Io => matches!(function, "prefill" | "decode" | "embed"),
            KvForm::State => {
                function == "embed" || function.starts_with("prefill_c") || function.starts_with("decode_c")
            }
            KvForm::None => matches!(function, "main" | "embed"),
        }
    }

    /// Whether a function of this form runs at a length; those that take several run at each of theirs.
    pub fn runs_at(self, function: &str, length: usize) -> bool {
        let context = function.split_once("_c").map(|(_, rest)| rest.split('_').next().unwrap_or_default());
        self.runs(function) && context.is_none_or(|context| context.parse() == Ok(length))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_belong_to_forms_and_lengths() {
        let functions =
            ["embed", "main", "prefill", "decode", "prefill_c512_q64", "decode_c512", "decode_c1024"];
        let run = |form: KvForm, length: usize| {
            let names = functions.into_iter().filter(|function| form.runs_at(function, length));
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(run(KvForm::Io, 512), "embed prefill decode");
        assert_eq!(run(KvForm::State, 512), "embed prefill_c512_q64 decode_c512");
        assert_eq!(run(KvForm::State, 1024), "embed decode_c1024");
        assert_eq!(run(KvForm::None, 512), "embed main");
    }
}
