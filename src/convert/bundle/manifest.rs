//! `export.json`: everything a harness has to know about an export.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::contract::Contract;
use super::repair::RangeRepair;
use crate::checkpoint::{self, CheckpointError};
use crate::compress::Log;
use crate::model::{Attends, Pooling};
use anemeter_base::schema::{self, SchemaError};
use anemeter_base::vocabulary::{Activations, ComputeUnits, Embeddings, KvForm, Origin, ShapesAs};

/// The version of the format that this program reads and writes.
pub const SCHEMA: &str = "anemeter.export/1";

/// The content of `export.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Format and version: `anemeter.export/1`.
    pub schema: String,
    /// What wrote it.
    pub tool: Tool,
    /// Who made the packages.
    #[serde(default, skip_serializing_if = "Origin::is_exported")]
    pub origin: Origin,
    /// The model's name.
    pub name: String,
    /// The model's sizes; absent if others made the packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// Where the weights came from; absent if others made the packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// What was asked for, with every default filled in; absent if others made the packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// How packages that others made are driven as a language model; absent if they are driven as the functions of an
    /// export are, or if they are no language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
    /// How texts become vectors or scores; absent unless the model is an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder: Option<Encoder>,
    /// The packages, in the order in which they run.
    pub chunks: Vec<Chunk>,
    /// Token vectors for the host to look up, if embeddings are the host's.
    pub host_embeddings: Option<File>,
    /// How text becomes tokens; absent if the checkpoint does not say.
    pub tokenizer: Option<Tokenizer>,
    /// What compression did to each weight; absent if nothing was asked for.
    #[serde(default)]
    pub compression: Option<Log>,
    /// What each layer lost at each precision when it was compressed alone; absent unless precisions were chosen by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Sensitivity>,
    /// Factors that keep activations within fp16; absent unless they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_repair: Option<RangeRepair>,
    /// The rotations that are folded into the weights; absent if none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<Rotated>,
    /// Remarks on the export that its user should know.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What the export took. The only part that differs from one run to the next.
    #[serde(default)]
    pub profile: Vec<Phase>,
}

impl Manifest {
    /// Of packages that others made, of which nothing else is known.
    pub fn of_packages(name: String, chunks: Vec<Chunk>) -> Manifest {
        Manifest {
            schema: SCHEMA.to_owned(),
            tool: Tool { name: "anemeter".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            origin: Origin::Adopted,
            name,
            architecture: None,
            checkpoint: None,
            settings: None,
            contract: None,
            encoder: None,
            chunks,
            host_embeddings: None,
            tokenizer: None,
            compression: None,
            sensitivity: None,
            range_repair: None,
            rotated: None,
            warnings: Vec::new(),
            profile: Vec::new(),
        }
    }
}

/// What is known of a model that this program exported.
#[derive(Debug, Clone, Copy)]
pub struct Exported<'a> {
    /// The model's sizes.
    pub architecture: &'a Architecture,
    /// Where the weights came from.
    pub checkpoint: &'a Checkpoint,
    /// What was asked for.
    pub settings: &'a Settings,
}

/// Rotations of a model's coordinates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotated {
    /// Whether the weights have them.
    pub is_used: bool,
    /// The map of the residual stream, such as `Hadamard 64 x orthogonal 9`; absent if the model allows none.
    pub stream: Option<String>,
    /// The map of each head's values.
    pub values: Option<String>,
    /// Why the residual stream has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Divergence of the compressed model from the uncompressed one on tokens that no code was chosen by, in nats: without
    /// rotations, and with them. Absent unless they were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<[f64; 2]>,
}

/// What each part of a model lost at each precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sensitivity {
    /// Bits per element that all of them together may take.
    pub target_bits: f64,
    /// Positions of the calibration text that were compared.
    pub positions: usize,
    /// What each part of the model lost.
    pub layers: Vec<LayerSensitivity>,
}

/// What one part of a model lost at each precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerSensitivity {
    /// The part, such as `layer 3`.
    pub name: String,
    /// Elements of its weights.
    pub elements: u64,
    /// The precision that was chosen.
    pub chosen: String,
    /// Bits per element then, with everything that belongs to it.
    pub bits: f64,
    /// Mean divergence of the logits in nats, by precision.
    pub divergence: Vec<(String, f64)>,
}

/// The program that wrote a bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// `anemeter`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The sizes of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// Such as `llama`.
    pub name: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads of the first layer.
    pub heads: usize,
    /// Key and value heads of the first layer.
    pub kv_heads: usize,
    /// Width of a head of the first layer.
    pub head_dim: usize,
    /// Numbers in all weights; a tied head counts once.
    pub parameters: u64,
    /// Longest sequence it was trained for.
    pub max_positions: usize,
    /// Bytes of keys and values per token and sequence, in fp16.
    pub kv_bytes_per_token: u64,
    /// Bytes of states per sequence that do not grow with it: of short convolutions and delta rules.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub state_bytes: u64,
    /// Factor on the token vectors, which the host applies if embeddings are the host's.
    pub embedding_scale: f32,
    /// Whether positions are learned vectors, so that functions which take ids take positions too.
    pub learned_positions: bool,
    /// Inputs of each layer that are looked up besides; absent if layers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_layer: Option<PerLayerLookup>,
}

/// What is looked up for a token besides its vector: a part for each layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerLayerLookup {
    /// Numbers of all layers.
    pub width: usize,
    /// Factor on them, which the host applies if embeddings are the host's.
    pub scale: f32,
}

/// How an encoder makes vectors or scores of texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Encoder {
    /// What a token sees of the others. A window of a mask counts to each side that is seen, the token itself included.
    pub attends: Attends,
    /// What the last package gives.
    pub output: EncoderOutput,
    /// Numbers of one output vector.
    pub width: usize,
    /// Whether output vectors have the length 1.
    pub normalized: bool,
    /// How much each token counts in the input `pool`; absent if hidden states come out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// Kinds of segments; with more than one there is an input `token_type_ids`.
    pub segment_kinds: usize,
    /// Longer texts are cut to so many tokens.
    pub max_tokens: usize,
    /// Whether texts are put in lower case before the tokenizer sees them.
    #[serde(default)]
    pub lower_case: bool,
    /// Texts to put before others, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prompts: BTreeMap<String, String>,
    /// The prompt that is used unless another is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_prompt: Option<String>,
}

/// The output of an encoder, which has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EncoderOutput {
    /// A vector that stands for a text.
    Embedding,
    /// A score for each label.
    Scores,
    /// A vector for each token.
    HiddenStates,
}

impl EncoderOutput {
    /// Its name in the package.
    pub fn name(self) -> &'static str {
        match self {
            EncoderOutput::Embedding => "embedding",
            EncoderOutput::Scores => "scores",
            EncoderOutput::HiddenStates => "hidden_states",
        }
    }
}

/// Where the weights came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Name of its file or folder.
    pub name: String,
    /// Bytes of its weight files.
    pub bytes: u64,
    /// Digest of names, sizes and samples of its weight files.
    pub digest: String,
}

/// What an export was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Forms of the KV cache.
    pub kv: Vec<KvForm>,
    /// Sequence and cache lengths of the forms `io` and `none`; the first is the default.
    pub seq_lens: Vec<usize>,
    /// How functions take the lengths of the forms `io` and `none`.
    #[serde(default, skip_serializing_if = "ShapesAs::is_enumerated")]
    pub shapes_as: ShapesAs,
    /// Cache lengths of the form `state`.
    pub contexts: Vec<usize>,
    /// Tokens per prediction of the form `state` while it takes a prompt in.
    pub query: usize,
    /// Sequences of one prediction.
    pub batch: usize,
    /// Where token ids become vectors.
    pub embeddings: Embeddings,
    /// Outputs the logits are divided among.
    pub head_split: usize,
    /// The opset of all functions, such as `CoreML8`.
    pub opset: String,
    /// Where Core ML is to place operations when the bundle is loaded.
    pub compute_units: ComputeUnits,
    /// Precision of the weights, as asked for.
    pub precision: String,
    /// What the numbers between operations are, inputs, outputs and states included.
    #[serde(default, skip_serializing_if = "Activations::is_fp16")]
    pub activations: Activations,
    /// Lengths that the model was trained with, if a training configuration was given.
    pub training_seq_lens: Option<Vec<usize>>,
    /// The configuration file of the export, if one was given: its path from the folder of the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// A file of the bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its name in the bundle's folder.
    pub name: String,
    /// Its size; of a package, that of all its files.
    pub bytes: u64,
    /// Its digest, such as `xxh3:00…`.
    pub digest: String,
}

/// A package and what runs in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chunk {
    /// The package, relative to the bundle.
    pub file: File,
    /// The first of its layers.
    pub first_layer: usize,
    /// How many layers it has.
    pub layers: usize,
    /// The masks its functions take.
    pub masks: Vec<Mask>,
    /// The rotations its functions take.
    pub rotations: Vec<Rotation>,
    /// The factors of queries that its functions take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_scales: Vec<QueryScale>,
    /// Entry points of the package.
    pub functions: Vec<Function>,
    /// The same functions as a Core AI asset, if one was asked for. Where no package was asked for, `file` is the asset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asset: Option<Asset>,
}

/// A Core AI asset, in which every shape of a function is a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Asset {
    /// The asset, relative to the bundle.
    pub file: File,
    /// Its functions.
    pub functions: Vec<AssetFunction>,
}

/// A function of a Core AI asset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssetFunction {
    /// Its name in the asset, such as `prefill_128`.
    pub name: String,
    /// The function of the chunk that it is, such as `prefill`.
    pub function: String,
    /// Which of the function's shapes it takes, from 0.
    pub shape: usize,
}

impl Chunk {
    /// What a function is called in the asset at one of its shapes.
    pub fn asset_function(&self, function: &str, shape: usize) -> Option<&str> {
        let functions = self.asset.iter().flat_map(|asset| &asset.functions);
        let mut found = functions.filter(|entry| entry.function == function && entry.shape == shape);
        found.next().map(|entry| entry.name.as_str())
    }
}

/// An attention mask that a function takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    /// Name of the input.
    pub input: String,
    /// Only this many latest positions are seen through it.
    pub window: Option<usize>,
}

/// A pair of inputs with cosines and sines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Name of the input with cosines.
    pub cos: String,
    /// Name of the input with sines.
    pub sin: String,
    /// The angle per position of each pair of dimensions, in f32.
    pub frequencies: Vec<f32>,
    /// The factor on cosines and sines.
    pub magnitude: f32,
    /// The angles of longer sequences, where they differ (LongRoPE).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongRotation>,
}

/// Angles that replace those of a rotation in longer sequences. They are then the angles of all its positions, so
/// that a cache is computed anew when a sequence becomes longer than `above`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LongRotation {
    /// They are for sequences of more tokens than this.
    pub above: usize,
    /// The angle per position of each pair of dimensions, in f32.
    pub frequencies: Vec<f32>,
}

/// An input with a factor of queries for each token: `1 + beta * ln(1 + floor(position / length))`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryScale {
    /// Name of the input.
    pub input: String,
    /// How fast the factor grows.
    pub beta: f64,
    /// Positions before the first step.
    pub length: usize,
}

/// A function of a package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Inputs.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// States.
    pub states: Vec<Port>,
}

/// An input, output or state of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Element type, such as `fp16`.
    pub dtype: String,
    /// Its shapes, the default first; those of several inputs pair by index. Empty where only the program says.
    pub shapes: Vec<Vec<u64>>,
}

/// How text becomes tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tokenizer {
    /// `tokenizer.json`.
    pub file: File,
    /// The chat template, in Jinja.
    pub chat_template: Option<String>,
    /// Token that begins a text.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json` with what is beside it, as the file `name` of a bundle; gives its content, too.
    pub fn read(path: &Path, name: &str) -> Result<(Tokenizer, Vec<u8>), CheckpointError> {
        let checkpoint::TextFiles { tokenizer, chat_template, bos, eos } = checkpoint::text_files(path)?;
        let digest = digest_text(xxhash_rust::xxh3::xxh3_128(&tokenizer));
        let file = File { name: name.to_owned(), bytes: tokenizer.len() as u64, digest };
        Ok((Tokenizer { file, chat_template, bos, eos }, tokenizer))
    }
}

/// What a part of the export took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Such as `open` or `write`.
    pub name: String,
    /// The file it was about, if it was one.
    pub file: Option<String>,
    /// Wall time of the phase.
    pub seconds: f64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Resident memory of the process at its end, where the system tells.
    pub resident_bytes: Option<u64>,
}

impl Manifest {
    /// Reads `export.json`.
    pub fn parse(text: &str) -> Result<Manifest, SchemaError> {
        let manifest: Manifest = schema::parse(text, SCHEMA, "the description of a bundle")?;
        match manifest.missing() {
            Some(key) => Err(SchemaError::Content(serde::de::Error::missing_field(key))),
            None => Ok(manifest),
        }
    }

    /// A key that the description of an export has and this one lacks.
    fn missing(&self) -> Option<&'static str> {
        let keys = [
            ("architecture", self.architecture.is_none()),
            ("checkpoint", self.checkpoint.is_none()),
            ("settings", self.settings.is_none()),
        ];
        let lacking = keys.into_iter().find(|(_, is_missing)| *is_missing).map(|(key, _)| key);
        lacking.filter(|_| self.origin == Origin::Exported)
    }

    /// What only the description of an export says; `None` if others made the packages.
    pub fn exported(&self) -> Option<Exported<'_>> {
        let (architecture, checkpoint) = (self.architecture.as_ref()?, self.checkpoint.as_ref()?);
        Some(Exported { architecture, checkpoint, settings: self.settings.as_ref()? })
    }

    /// Where Core ML is to place operations, unless it is asked otherwise.
    pub fn compute_units(&self) -> ComputeUnits {
        self.settings.as_ref().map(|settings| settings.compute_units).unwrap_or_default()
    }

    /// Precision of the weights: as it was asked for, or as it is in packages that others made.
    pub fn precision(&self) -> &str {
        self.settings.as_ref().map_or("stored", |settings| &settings.precision)
    }

    /// Whether a form of the KV cache is in the bundle.
    pub fn has(&self, form: KvForm) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.kv.contains(&form))
    }

    /// Bytes of keys, values and other states of one sequence of the given length; none are known of packages that others made.
    pub fn kv_bytes(&self, length: usize) -> u64 {
        self.architecture
            .as_ref()
            .map_or(0, |sizes| sizes.state_bytes + sizes.kv_bytes_per_token * length as u64)
    }
}

/// For fields that are left out then.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A digest as text.
pub fn digest_text(digest: u128) -> String {
    format!("xxh3:{digest:032x}")
}
