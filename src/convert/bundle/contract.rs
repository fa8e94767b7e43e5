//! How a language model that others exported is driven: what its functions are for and what each input and output means.
//!
//! A contract is plain data, in `export.json` and in YAML files with the same keys. Known contracts are recognised by
//! names and types and written down in this form too, so that one driver serves all of them.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use anemeter_base::vocabulary::KvForm;

/// How the packages of a bundle together are one language model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Which contract it is.
    #[serde(default)]
    pub name: ContractName,
    /// Most tokens of a sequence, prompt and answer together.
    pub context_length: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Lengths that sequences are padded to where nothing is cached, shortest first; `context_length` alone if none are
    /// given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<usize>,
    /// What runs for a token, in this order.
    pub packages: Vec<ContractPackage>,
    /// `tokenizer.json`, relative to the contract file or to the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
}

/// Contracts with a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContractName {
    /// Ids of the whole sequence to logits of every position; nothing is cached.
    WholeSequence,
    /// Of swift-transformers: keys and values in two states.
    SwiftTransformers,
    /// Of older swift-transformers: the whole sequence, padded; nothing is cached.
    SwiftTransformersStateless,
    /// Of older swift-transformers: caches are inputs and outputs.
    SwiftTransformersCaches,
    /// Of ANEMLL: embeddings, chunks with one state for all of them, a head.
    Anemll,
    /// Of CoreML-LLM: the token that is picked as output; one package, or chunks that share keys and values.
    CoremlLlm,
    /// Stated by a file.
    #[default]
    Custom,
}

impl fmt::Display for ContractName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ContractName::WholeSequence => "whole sequence",
            ContractName::SwiftTransformers => "swift-transformers (stateful)",
            ContractName::SwiftTransformersStateless => "swift-transformers (stateless)",
            ContractName::SwiftTransformersCaches => "swift-transformers (caches as inputs and outputs)",
            ContractName::Anemll => "ANEMLL",
            ContractName::CoremlLlm => "CoreML-LLM",
            ContractName::Custom => "contract file",
        })
    }
}

/// What a package does for a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractPackage {
    /// Name of the package in the bundle.
    pub package: String,
    /// Its functions; one that is not listed is not run.
    pub functions: Vec<ContractFunction>,
}

/// What a function is for, and the meaning of its inputs and outputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractFunction {
    /// Its name in the package.
    pub function: String,
    /// What it is for.
    pub role: ContractRole,
    /// Tokens of one prediction; absent if the shapes of the inputs leave it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// Where given, nothing is padded: it takes `tokens` tokens that end at this position or before, and others are decoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_pieces_to: Option<usize>,
    /// What its inputs mean.
    pub inputs: ContractInputs,
    /// Caches that are inputs and outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CachePair>,
    /// States that it keeps keys and values in. Functions of one package that name the same state share it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// Whether its states are those of all packages that name them, not of its package alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub states_are_shared: bool,
    /// What its outputs mean.
    pub outputs: ContractOutputs,
}

/// What a function of a language model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContractRole {
    /// Token ids to vectors.
    Embed,
    /// Some tokens of a prompt after those that are cached.
    Prefill,
    /// One token after those that are cached.
    Decode,
    /// A whole sequence, without a cache.
    WholeSequence,
    /// Vectors to logits.
    Head,
}

/// The meaning of each input of a function. An input that is not named here, as a cache or as a state is an error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractInputs {
    /// Token ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<String>,
    /// Vectors that the function before gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    /// Which positions are seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<ContractMask>,
    /// The position of each token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<String>,
    /// The position of the first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_position: Option<String>,
    /// One where keys and values are written, zero elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_mask: Option<String>,
    /// Tokens so far, those of this prediction included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_sequence_length: Option<String>,
    /// The slot of the first token in a cache that is written round and round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_position: Option<RingPosition>,
    /// Outputs of functions that run before, as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<PassedInput>,
    /// Rows of tables in files beside the packages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<TableRows>,
}

/// The position of the first token within a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingPosition {
    /// Name of the input.
    pub input: String,
    /// Slots of the cache.
    pub window: usize,
}

/// An output of a function that is an input of one after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PassedInput {
    /// Name of the input.
    pub input: String,
    /// Name of the output.
    pub output: String,
}

/// An input that is a row of a table for each token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableRows {
    /// Name of the input. Its last size is that of a row.
    pub input: String,
    /// What selects a row.
    pub by: RowsBy,
    /// The table: an `.npy` file of floats, or with `scales` a file of int8 codes and nothing else.
    pub file: String,
    /// A file of one fp16 per row and nothing else: an element is its code times this, divided by 127.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scales: Option<String>,
    /// What every element is multiplied by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
}

/// What selects a row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowsBy {
    /// The token's id.
    Token,
    /// The token's position.
    Position,
}

/// An input that says which positions are seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractMask {
    /// Name of the input.
    pub input: String,
    /// What its values mean.
    pub kind: MaskKind,
    /// The positions that it has a column for.
    #[serde(default)]
    pub keys: MaskKeys,
}

/// The positions that a mask has a column for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MaskKeys {
    /// Those of the whole context; of a whole sequence, all of it.
    #[default]
    Context,
    /// Those up to the last token of the prediction, so that the shape says where the sequence ends.
    Seen,
}

/// What the values of a mask mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MaskKind {
    /// Added to scores: zero where a token sees a position, minus infinity elsewhere; a row per token.
    CausalAdditive,
    /// One for tokens, zero for padding.
    Padding,
    /// Zeros everywhere: the program makes its own mask, and only the shape counts.
    Zeros,
    /// Added to the scores of a window whose last column is the latest token: zero for as many columns as there are tokens,
    /// counted from the end, minus infinity elsewhere.
    Window,
    /// Added to the scores of a window that is written round and round: zero for the columns that are written, minus infinity
    /// elsewhere.
    Ring,
}

/// A cache that goes in and comes out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CachePair {
    /// Name of the input.
    pub input: String,
    /// Name of the output that is the input of the next prediction.
    pub output: String,
}

/// The meaning of the outputs of a function. Outputs that are not named are not read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractOutputs {
    /// Vectors for the function after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    /// Logits: one output, or slices of the vocabulary in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logits: Vec<String>,
    /// The largest logit of each slice of the vocabulary, in place of logits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argmax: Vec<ArgMax>,
}

/// The largest logits of slices of the vocabulary, one number per slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArgMax {
    /// Output with their indices.
    pub index: String,
    /// Output with their values; absent if there is one slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Added to the index of each slice to give the token, where indices are those of the slice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offsets: Vec<usize>,
}

impl Contract {
    /// All functions with the packages that they are in, in order.
    pub fn functions(&self) -> impl Iterator<Item = (&ContractPackage, &ContractFunction)> {
        self.packages
            .iter()
            .flat_map(|package| package.functions.iter().map(move |function| (package, function)))
    }

    /// How keys and values are kept.
    pub fn kv(&self) -> KvForm {
        let any = |has: fn(&ContractFunction) -> bool| self.functions().any(|(_, function)| has(function));
        match () {
            () if any(|function| !function.states.is_empty()) => KvForm::State,
            () if any(|function| !function.caches.is_empty()) => KvForm::Io,
            () => KvForm::None,
        }
    }

    /// The lengths that a sequence is computed at, shortest first.
    pub fn lengths(&self) -> Vec<usize> {
        let mut lengths = match self.kv() {
            KvForm::None if !self.lengths.is_empty() => self.lengths.clone(),
            _ => vec![self.context_length],
        };
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// Files beside the packages that it needs, each once.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let rows = self.functions().flat_map(|(_, function)| &function.inputs.rows);
        let files = rows.flat_map(|rows| [Some(&rows.file), rows.scales.as_ref()]).flatten();
        files.map(String::as_str).collect::<BTreeSet<_>>().into_iter()
    }

    /// Whether a function of a package runs at all.
    pub fn runs(&self, package: &str, function: &str) -> bool {
        self.functions().any(|(of, candidate)| of.package == package && candidate.function == function)
    }

    /// The functions of a package that one token runs: all but those that take a prompt in.
    pub fn decoding<'a>(&'a self, package: &'a str) -> impl Iterator<Item = &'a str> {
        let of_package = self.functions().filter(move |(of, _)| of.package == package);
        let decoding = of_package.filter(|(_, function)| function.role != ContractRole::Prefill);
        decoding.map(|(_, function)| function.function.as_str())
    }
}

/// The contract in one line: what it is, its inputs and its states.
impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut inputs, mut caches, mut states) = (Vec::new(), Vec::new(), Vec::new());
        let add = |list: &mut Vec<String>, name: &str| {
            if !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
        };
        for (_, function) in self.functions() {
            function.inputs.names().for_each(|name| add(&mut inputs, name));
            function.caches.iter().for_each(|cache| add(&mut caches, &cache.input));
            function.states.iter().for_each(|name| add(&mut states, name));
        }
        write!(f, "{}: {}", self.name, inputs.join(", "))?;
        for (word, list) in [("caches", caches), ("states", states)] {
            if !list.is_empty() {
                write!(f, "; {word} {}", list.join(", "))?;
            }
        }
        Ok(())
    }
}

impl ContractInputs {
    /// Names of the inputs, those from the function before too.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let masks = self.masks.iter().map(|mask| &mask.input);
        let places = [&self.positions, &self.current_position, &self.update_mask, &self.full_sequence_length];
        let ids = self.ids.iter().chain(&self.hidden);
        let ring = self.ring_position.iter().map(|ring| &ring.input);
        let passed = self.passed.iter().map(|passed| &passed.input);
        let rows = self.rows.iter().map(|rows| &rows.input);
        let places = places.into_iter().flatten().chain(ring);
        ids.chain(rows).chain(masks).chain(places).chain(passed).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ANEMLL's two chunks and split head look like.
    const CHUNKS: &str = "
name: anemll
context_length: 512
vocabulary: 32000
tokenizer: tokenizer.json
packages:
  - package: embeddings.mlpackage
    functions:
      - { function: main, role: embed, inputs: { ids: input_ids }, outputs: { hidden: hidden_states } }
  - package: chunk_01of01.mlpackage
    functions:
      - function: prefill
        role: prefill
        tokens: 64
        inputs:
          hidden: hidden_states
          masks: [{ input: causal_mask, kind: causal-additive }]
          positions: position_ids
          current_position: current_pos
        states: [model.model.kv_cache_0]
        states_are_shared: true
        outputs: { hidden: output_hidden_states }
  - package: lm_head.mlpackage
    functions:
      - function: main
        role: head
        tokens: 1
        inputs: { hidden: hidden_states }
        outputs: { logits: [logits1, logits2] }
";

    #[test]
    fn a_file_is_read_and_comes_back_from_json() {
        let contract: Contract = serde_yaml::from_str(CHUNKS).unwrap();
        let prefill = &contract.packages[1].functions[0];
        assert_eq!((contract.name, contract.context_length), (ContractName::Anemll, 512));
        assert_eq!((prefill.role, prefill.tokens), (ContractRole::Prefill, Some(64)));
        assert!(prefill.states_are_shared && contract.packages[0].functions[0].tokens.is_none());
        assert_eq!((contract.kv(), contract.lengths()), (KvForm::State, vec![512]));
        assert_eq!(contract.decoding("lm_head.mlpackage").collect::<Vec<_>>(), ["main"]);
        assert_eq!(contract.decoding("chunk_01of01.mlpackage").count(), 0);
        assert!(contract.runs("chunk_01of01.mlpackage", "prefill"));
        let told = "ANEMLL: input_ids, hidden_states, causal_mask, position_ids, current_pos; \
                    states model.model.kv_cache_0";
        assert_eq!(contract.to_string(), told);
        let json = serde_json::to_string(&contract).unwrap();
        assert_eq!(serde_json::from_str::<Contract>(&json).unwrap(), contract);
    }

    #[test]
    fn misspelt_keys_are_refused() {
        let text = CHUNKS.replace("current_position:", "current_pos:");
        let error = serde_yaml::from_str::<Contract>(&text).unwrap_err().to_string();
        assert!(error.contains("current_pos"), "{error}");
    }
}
