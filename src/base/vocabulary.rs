//! Words that exports and evaluations share.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A closed set of values with a name each, as options and configurations spell them.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// Every value, in the order in which it is listed.
    const ALL: &'static [Self];

    /// Its name.
    fn name(self) -> &'static str;

    /// The value of a name.
    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.name() == name)
    }
}

/// Where keys and values of earlier tokens are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
    CpuGpu,
    /// On the CPU and the Neural Engine.
    #[serde(rename = "cpu+ane")]
    CpuAne,
}

/// How fp16 arithmetic is carried out on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Numerics {
    /// fp16 tensors are computed in f32 and rounded where a tensor is stored.
    #[default]
    Fast,
    /// Accumulation and intermediates are rounded as a device that works in fp16 rounds them.
    Fp16Exact,
}

/// Who made the packages of a bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// This program, from a checkpoint.
    #[default]
    Exported,
    /// Others; the bundle is around packages that were there.
    Adopted,
}

/// What one request of a benchmark is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    /// A prompt is taken in and tokens are generated.
    #[default]
    Generate,
    /// A function makes one prediction.
    Predict,
}

/// What a prediction finds in the states of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateUse {
    /// Zeros: each request begins anew.
    #[default]
    Fresh,
    /// What the prediction before left.
    Kept,
}

/// What executes packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RuntimeName {
    /// Core ML.
    #[serde(rename = "coreml")]
    CoreMl,
    /// The embedded CPU runtime.
    #[serde(rename = "cpu")]
    Cpu,
    /// Core AI, which executes `.aimodel`: the system's framework on macOS 27, Apple's CPU interpreter elsewhere.
    #[serde(rename = "coreai")]
    CoreAi,
    /// Core ML through another binding.
    #[serde(rename = "coreml-rs")]
    CoreMlRs,
}

/// What exported models are written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelFormat {
    /// Core ML packages (`.mlpackage`), for all systems since macOS 15 and iOS 18.
    CoreMl,
    /// Core AI assets (`.aimodel`), for macOS 27 and iOS 27.
    CoreAi,
}

/// Whose programs a bundle is for: what its functions are called and take, and which files it has.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// This program: packages or assets, `tokenizer.json` and `export.json`.
    #[default]
    Anemeter,
    /// Apple's programs for language models (`llm-runner`, `llm-benchmark`), functions of fixed sizes for the Neural Engine.
    AppleLlm,
    /// The same programs, one function of open sizes for the GPU.
    AppleLlmDynamic,
}

/// What the numbers between operations are.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Activations {
    /// fp16, as the Neural Engine computes.
    #[default]
    Fp16,
    /// fp32 in place of fp16, inputs, outputs and states included; weights keep their values.
    Fp32,
}

/// Whether rotations are folded into the weights of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rotate {
    /// No: coordinates are those of the checkpoint.
    #[default]
    Off,
    /// Yes, as far as the model allows them.
    On,
    /// If the model loses less by its codes then, on tokens that no code was chosen by.
    Auto,
}

/// A kind of compute device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// The CPU.
    Cpu,
    /// The GPU.
    Gpu,
    /// The Neural Engine.
    NeuralEngine,
    /// One that this program does not know.
    Other,
}

/// How a model takes sequences of different lengths.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ShapesAs {
    /// Functions whose inputs enumerate shapes.
    #[default]
    Enumerated,
    /// A function for each length: `prefill_128` takes 128 tokens.
    Functions,
}

/// What a function of a package is for. Its name states it: `main`, `embed`, `prefill`, `decode`,
/// `prefill_c{context}_q{query}` or `decode_c{context}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionRole {
    /// A whole sequence; keys and values are not kept.
    Main,
    /// Token ids to vectors.
    Embed,
    /// A whole sequence; its keys and values are outputs.
    Prefill,
    /// One token after those of the cache inputs; its keys and values are outputs.
    Decode,
    /// Some tokens after those of a state.
    PrefillState {
        /// Positions of the state.
        context: usize,
        /// Tokens at once.
        query: usize,
    },
    /// One token after those of a state.
    DecodeState {
        /// Positions of the state.
        context: usize,
    },
}

/// A function that is not named after a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the function name `{0}` states no role")]
pub struct UnknownRole(String);

/// The state that keeps keys and values of a context.
pub fn kv_state_name(context: usize) -> String {
    format!("kv_cache_c{context}")
}

impl FunctionRole {
    /// The name of [`FunctionRole::Main`].
    pub const MAIN: &'static str = "main";
    /// The name of [`FunctionRole::Embed`].
    pub const EMBED: &'static str = "embed";
    /// The name of [`FunctionRole::Prefill`].
    pub const PREFILL: &'static str = "prefill";
    /// The name of [`FunctionRole::Decode`].
    pub const DECODE: &'static str = "decode";

    /// Positions of the state that it works on, if it has one.
    pub fn context(self) -> Option<usize> {
        match self {
            FunctionRole::PrefillState { context, .. } | FunctionRole::DecodeState { context } => {
                Some(context)
            }
            _ => None,
        }
    }
}

impl fmt::Display for FunctionRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionRole::Main => f.write_str(Self::MAIN),
            FunctionRole::Embed => f.write_str(Self::EMBED),
            FunctionRole::Prefill => f.write_str(Self::PREFILL),
            FunctionRole::Decode => f.write_str(Self::DECODE),
            FunctionRole::PrefillState { context, query } => write!(f, "prefill_c{context}_q{query}"),
            FunctionRole::DecodeState { context } => write!(f, "decode_c{context}"),
        }
    }
}

impl FromStr for FunctionRole {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<FunctionRole, UnknownRole> {
        let with_state = || {
            if let Some(context) = name.strip_prefix("decode_c") {
                return Some(FunctionRole::DecodeState { context: context.parse().ok()? });
            }
            let (context, query) = name.strip_prefix("prefill_c")?.split_once("_q")?;
            Some(FunctionRole::PrefillState { context: context.parse().ok()?, query: query.parse().ok()? })
        };
        match name {
            Self::MAIN => Some(FunctionRole::Main),
            Self::EMBED => Some(FunctionRole::Embed),
            Self::PREFILL => Some(FunctionRole::Prefill),
            Self::DECODE => Some(FunctionRole::Decode),
            _ => with_state(),
        }
        .ok_or_else(|| UnknownRole(name.to_owned()))
    }
}

impl KvForm {
    /// Whether a function of this form runs at a sequence length; those that take several run at each of theirs.
    pub fn runs_at(self, role: FunctionRole, seq_len: usize) -> bool {
        match role {
            FunctionRole::Embed => true,
            FunctionRole::Main => self == KvForm::None,
            FunctionRole::Prefill | FunctionRole::Decode => self == KvForm::Io,
            FunctionRole::PrefillState { context, .. } | FunctionRole::DecodeState { context } => {
                self == KvForm::State && context == seq_len
            }
        }
    }

    /// The function that computes one token at a sequence length.
    pub fn decode_role(self, seq_len: usize) -> FunctionRole {
        match self {
            KvForm::Io => FunctionRole::Decode,
            KvForm::State => FunctionRole::DecodeState { context: seq_len },
            KvForm::None => FunctionRole::Main,
        }
    }
}

impl Choice for KvForm {
    const ALL: &'static [KvForm] = &[KvForm::Io, KvForm::State, KvForm::None];

    fn name(self) -> &'static str {
        match self {
            KvForm::Io => "io",
            KvForm::State => "state",
            KvForm::None => "none",
        }
    }
}

impl Choice for Embeddings {
    const ALL: &'static [Embeddings] = &[Embeddings::Host, Embeddings::Function, Embeddings::Graph];

    fn name(self) -> &'static str {
        match self {
            Embeddings::Host => "host",
            Embeddings::Function => "function",
            Embeddings::Graph => "graph",
        }
    }
}

impl Activations {
    /// Whether they are fp16.
    pub fn is_fp16(&self) -> bool {
        *self == Activations::Fp16
    }
}

impl Choice for ModelFormat {
    const ALL: &'static [ModelFormat] = &[ModelFormat::CoreMl, ModelFormat::CoreAi];

    fn name(self) -> &'static str {
        match self {
            ModelFormat::CoreMl => "coreml",
            ModelFormat::CoreAi => "coreai",
        }
    }
}

impl ShapesAs {
    /// Whether inputs enumerate shapes, which documents leave out.
    pub fn is_enumerated(&self) -> bool {
        *self == ShapesAs::Enumerated
    }
}

impl Choice for ShapesAs {
    const ALL: &'static [ShapesAs] = &[ShapesAs::Enumerated, ShapesAs::Functions];

    fn name(self) -> &'static str {
        match self {
            ShapesAs::Enumerated => "enumerated",
            ShapesAs::Functions => "functions",
        }
    }
}

impl Choice for Layout {
    const ALL: &'static [Layout] = &[Layout::Anemeter, Layout::AppleLlm, Layout::AppleLlmDynamic];

    fn name(self) -> &'static str {
        match self {
            Layout::Anemeter => "anemeter",
            Layout::AppleLlm => "apple-llm",
            Layout::AppleLlmDynamic => "apple-llm-dynamic",
        }
    }
}

impl Choice for Activations {
    const ALL: &'static [Activations] = &[Activations::Fp16, Activations::Fp32];

    fn name(self) -> &'static str {
        match self {
            Activations::Fp16 => "fp16",
            Activations::Fp32 => "fp32",
        }
    }
}

impl Choice for Rotate {
    const ALL: &'static [Rotate] = &[Rotate::Off, Rotate::On, Rotate::Auto];

    fn name(self) -> &'static str {
        match self {
            Rotate::Off => "off",
            Rotate::On => "on",
            Rotate::Auto => "auto",
        }
    }
}

impl Choice for ComputeUnits {
    const ALL: &'static [ComputeUnits] =
        &[ComputeUnits::All, ComputeUnits::Cpu, ComputeUnits::CpuGpu, ComputeUnits::CpuAne];

    fn name(self) -> &'static str {
        match self {
            ComputeUnits::All => "all",
            ComputeUnits::Cpu => "cpu",
            ComputeUnits::CpuGpu => "cpu+gpu",
            ComputeUnits::CpuAne => "cpu+ane",
        }
    }
}

impl Choice for RuntimeName {
    const ALL: &'static [RuntimeName] =
        &[RuntimeName::CoreMl, RuntimeName::Cpu, RuntimeName::CoreAi, RuntimeName::CoreMlRs];

    fn name(self) -> &'static str {
        match self {
            RuntimeName::CoreMl => "coreml",
            RuntimeName::Cpu => "cpu",
            RuntimeName::CoreAi => "coreai",
            RuntimeName::CoreMlRs => "coreml-rs",
        }
    }
}

impl Choice for WorkloadKind {
    const ALL: &'static [WorkloadKind] = &[WorkloadKind::Generate, WorkloadKind::Predict];

    fn name(self) -> &'static str {
        match self {
            WorkloadKind::Generate => "generate",
            WorkloadKind::Predict => "predict",
        }
    }
}

impl Choice for StateUse {
    const ALL: &'static [StateUse] = &[StateUse::Fresh, StateUse::Kept];

    fn name(self) -> &'static str {
        match self {
            StateUse::Fresh => "fresh",
            StateUse::Kept => "kept",
        }
    }
}

impl Origin {
    /// Whether it is [`Origin::Exported`], which documents leave out.
    pub fn is_exported(&self) -> bool {
        *self == Origin::Exported
    }
}

impl Choice for Numerics {
    const ALL: &'static [Numerics] = &[Numerics::Fast, Numerics::Fp16Exact];

    fn name(self) -> &'static str {
        match self {
            Numerics::Fast => "fast",
            Numerics::Fp16Exact => "fp16-exact",
        }
    }
}

impl fmt::Display for RuntimeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for KvForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Device::Cpu => "CPU",
            Device::Gpu => "GPU",
            Device::NeuralEngine => "Neural Engine",
            Device::Other => "unknown device",
        })
    }
}

impl fmt::Display for ComputeUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_documents() {
        fn check<T: Choice + Serialize>() {
            for value in T::ALL {
                assert_eq!(serde_json::to_value(value).unwrap(), value.name());
                assert!(T::of_name(value.name()) == Some(*value));
            }
            assert!(T::of_name("neither").is_none());
        }
        check::<KvForm>();
        check::<Embeddings>();
        check::<ComputeUnits>();
        check::<Numerics>();
        check::<RuntimeName>();
        check::<ShapesAs>();
    }

    #[test]
    fn functions_belong_to_forms_and_lengths() {
        let functions =
            ["embed", "main", "prefill", "decode", "prefill_c512_q64", "decode_c512", "decode_c1024"];
        let run = |form: KvForm, length: usize| {
            let names = functions.into_iter().filter(|name| form.runs_at(name.parse().unwrap(), length));
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(run(KvForm::Io, 512), "embed prefill decode");
        assert_eq!(run(KvForm::State, 512), "embed prefill_c512_q64 decode_c512");
        assert_eq!(run(KvForm::State, 1024), "embed decode_c1024");
        assert_eq!(run(KvForm::None, 512), "embed main");
        for name in functions {
            assert_eq!(name.parse::<FunctionRole>().unwrap().to_string(), name);
        }
        for other in
            ["", "decoder", "decode_c", "decode_c5_q1", "prefill_c512", "prefill_c_q4", "prefill_c5_qx"]
        {
            assert_eq!(other.parse::<FunctionRole>(), Err(UnknownRole(other.to_owned())));
        }
    }
}
