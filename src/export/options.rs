//! How an export is wanted: a configuration file and command-line flags, then defaults.

use std::collections::BTreeSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::chunking;
use super::error::ExportError;
use crate::bundle::{Sensitivity, Settings};
use crate::compress::{Plan, Precision};
use crate::lint::Target;
use crate::lower::Options;
use crate::model::{Decoder, Position};
use crate::vocabulary::{
    Activations, Choice, ComputeUnits, Embeddings, KvForm, Layout, ModelFormat, Rotate, ShapesAs,
};

/// `convert_coreml.yaml`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// How to export.
    #[serde(default)]
    pub coreml: ExportOptions,
    /// What the model was trained with.
    #[serde(default)]
    pub train: Option<Training>,
    /// A training configuration, relative to this file, whose `train.seq_lengths` is taken.
    #[serde(default)]
    pub training_config: Option<PathBuf>,
}

/// The part of a training configuration that an export has to know.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Sequence lengths.
    pub seq_lengths: Vec<usize>,
    /// Their shares.
    #[serde(default)]
    pub shape_probs: Option<Vec<f64>>,
}

/// How an export is wanted; what is absent has a default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportOptions {
    /// Sequence lengths; the first is the default.
    pub enumerate_shapes: Option<Vec<usize>>,
    /// How functions take the lengths of the forms `io` and `none`; `functions` where the model needs it, else `enumerated`.
    pub shapes_as: Option<ShapesAs>,
    /// Whether to write an ML program; nothing else can be written.
    pub mlprogram: Option<bool>,
    /// Where Core ML is to place operations.
    pub compute_units: Option<ComputeUnits>,
    /// Forms of the KV cache.
    pub kv: Option<Vec<KvForm>>,
    /// Cache lengths of the form `state`; those of `enumerate_shapes` if absent.
    pub contexts: Option<Vec<usize>>,
    /// Tokens per prediction of the form `state` while it takes a prompt in.
    pub query: Option<usize>,
    /// Sequences at once.
    pub batch: Option<usize>,
    /// Where token ids become vectors.
    pub embeddings: Option<Embeddings>,
    /// Outputs the logits are divided among.
    pub head_split: Option<usize>,
    /// Packages the layers are divided among: `auto` or a number.
    #[schemars(with = "Option<ChunkingText>")]
    pub chunks: Option<Chunking>,
    /// What the export is for; it decides how large a package may be.
    pub target: Option<Target>,
    /// What the models are written as.
    pub format: Option<Vec<ModelFormat>>,
    /// Whose programs the bundle is for.
    pub layout: Option<Layout>,
    /// Who made the model; what the checkpoint says if absent.
    pub author: Option<String>,
    /// The model's licence; what the checkpoint says if absent.
    pub license: Option<String>,
    /// What the model is; what the checkpoint says if absent.
    pub description: Option<String>,
    /// What the numbers between operations are: fp16, or fp32 for a twin that is computed exactly.
    pub activations: Option<Activations>,
    /// Whether factors keep activations within fp16.
    pub range_repair: Option<bool>,
    /// Precision of the weights: one for all, or a map of `default` and `rules`, each with `match` and `precision`.
    #[schemars(with = "Option<String>")]
    pub precision: Option<Plan>,
    /// Whether rotations are folded into the weights; `auto` needs a calibration text.
    pub rotate: Option<Rotate>,
}

/// How many packages the layers are divided among.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ChunkingText")]
pub enum Chunking {
    /// As few as the target's limits allow.
    Auto,
    /// So many.
    Count(usize),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum ChunkingText {
    Count(usize),
    Text(String),
}

impl TryFrom<ChunkingText> for Chunking {
    type Error = String;
    fn try_from(text: ChunkingText) -> Result<Chunking, String> {
        match text {
            ChunkingText::Count(count) => Ok(Chunking::Count(count)),
            ChunkingText::Text(text) => text.parse(),
        }
    }
}

impl std::str::FromStr for Chunking {
    type Err = String;
    fn from_str(text: &str) -> Result<Chunking, String> {
        match text {
            "auto" => Ok(Chunking::Auto),
            count => {
                count.parse().map(Chunking::Count).map_err(|_| "is neither `auto` nor a number".to_owned())
            }
        }
    }
}

/// An export with every default filled in.
#[derive(Debug, Clone)]
pub(super) struct ResolvedOptions {
    pub(super) options: Options,
    pub(super) warnings: Vec<String>,
    pub(super) training_lengths: Option<Vec<usize>>,
    pub(super) precision: Plan,
    pub(super) formats: BTreeSet<ModelFormat>,
    pub(super) activations: Activations,
    pub(super) compute_units: ComputeUnits,
}

impl ExportOptions {
    /// These options, and the others' where there are none.
    pub fn or(self, other: ExportOptions) -> ExportOptions {
        ExportOptions {
            enumerate_shapes: self.enumerate_shapes.or(other.enumerate_shapes),
            shapes_as: self.shapes_as.or(other.shapes_as),
            mlprogram: self.mlprogram.or(other.mlprogram),
            compute_units: self.compute_units.or(other.compute_units),
            kv: self.kv.or(other.kv),
            contexts: self.contexts.or(other.contexts),
            query: self.query.or(other.query),
            batch: self.batch.or(other.batch),
            embeddings: self.embeddings.or(other.embeddings),
            head_split: self.head_split.or(other.head_split),
            chunks: self.chunks.or(other.chunks),
            target: self.target.or(other.target),
            format: self.format.or(other.format),
            layout: self.layout.or(other.layout),
            author: self.author.or(other.author),
            license: self.license.or(other.license),
            description: self.description.or(other.description),
            activations: self.activations.or(other.activations),
            range_repair: self.range_repair.or(other.range_repair),
            precision: self.precision.or(other.precision),
            rotate: self.rotate.or(other.rotate),
        }
    }

    /// Whether data can choose the codes of the precision.
    pub(super) fn is_solvable(&self) -> bool {
        self.precision.as_ref().is_some_and(Plan::is_solvable)
    }

    /// Fills in what follows from the model and the defaults.
    pub(super) fn resolve(&self, decoder: &Decoder) -> Result<ResolvedOptions, ExportError> {
        if self.mlprogram == Some(false) {
            return Err(ExportError::option("mlprogram", "is false; only ML programs can be written"));
        }
        let mut warnings = Vec::new();
        let seq_lens = self.seq_lens(decoder, &mut warnings)?;
        let defaults = Options::default();
        let contexts = self.contexts.clone().unwrap_or_else(|| seq_lens.clone());
        let shortest = contexts.iter().min().copied().unwrap_or(defaults.query);
        let precision = self.precision.clone().unwrap_or_else(|| Precision::Keep.into());
        let (bits, target) = (precision.default.bits(), self.target.unwrap_or_default());
        let mut options = Options {
            kv: match &self.kv {
                Some(forms) => forms.iter().copied().collect::<BTreeSet<_>>(),
                None => defaults.kv,
            },
            query: self.query.unwrap_or(defaults.query.min(shortest)),
            seq_lens,
            contexts,
            shapes_as: self.shapes_as.unwrap_or_else(|| default_shapes_as(decoder)),
            batch: self.batch.unwrap_or(defaults.batch),
            embeddings: self.lookup(decoder, (bits, target), &mut warnings),
            head_split: self.head_split.unwrap_or(defaults.head_split),
            chunks: 1,
            opset: defaults.opset,
        };
        options.chunks = match self.chunks.unwrap_or(Chunking::Auto) {
            Chunking::Count(count) => count,
            Chunking::Auto => chunking::count(decoder, &options, bits, target),
        };
        if options.batch > 1 {
            warnings.push(format!(
                "batch {} is for offline work: it raises throughput and the latency of each token; reports of it \
                 are never compared with batch 1",
                options.batch
            ));
        }
        let compute_units = self.compute_units.unwrap_or_default();
        let formats = self.formats()?;
        let activations = self.activations.unwrap_or_default();
        let training_lengths = None;
        Ok(ResolvedOptions {
            options,
            warnings,
            training_lengths,
            precision,
            formats,
            activations,
            compute_units,
        })
    }

    /// Where token ids become vectors: on the host, unless another place is named, if no package can hold the table of the
    /// inputs of layers.
    fn lookup(
        &self,
        decoder: &Decoder,
        (bits, target): (f64, Target),
        warnings: &mut Vec<String>,
    ) -> Embeddings {
        let default = Options::default().embeddings;
        if self.embeddings == Some(Embeddings::Host) || chunking::holds_table(decoder, bits, target) {
            return self.embeddings.unwrap_or(default);
        }
        let gigabytes = chunking::table_bytes(decoder, bits) as f64 / 1e9;
        let table = format!(
            "the table of the inputs of layers has {gigabytes:.1} GB, which no package for {} can hold",
            target.name()
        );
        match self.embeddings {
            None => {
                warnings.push(format!("{table}: the host looks it up, as with --embeddings host"));
                Embeddings::Host
            }
            Some(place) => {
                warnings.push(format!(
                    "{table}, and it is part of the first all the same: give --embeddings host"
                ));
                place
            }
        }
    }

    /// Whose programs the bundle is for.
    pub fn layout(&self) -> Layout {
        self.layout.unwrap_or_default()
    }

    /// The formats asked for, each once.
    pub(super) fn formats(&self) -> Result<BTreeSet<ModelFormat>, ExportError> {
        let formats: BTreeSet<ModelFormat> = match &self.format {
            Some(formats) => formats.iter().copied().collect(),
            None => BTreeSet::from([ModelFormat::CoreMl]),
        };
        if formats.is_empty() {
            return Err(ExportError::option("format", "names none; coreml and coreai are possible"));
        }
        Ok(formats)
    }

    /// The sequence lengths asked for, or those of the defaults that the model was trained for.
    fn seq_lens(&self, decoder: &Decoder, warnings: &mut Vec<String>) -> Result<Vec<usize>, ExportError> {
        let most = decoder.max_positions;
        if let Some(seq_lens) = &self.enumerate_shapes {
            let rotary = matches!(decoder.position, Position::Rotary);
            for seq_len in seq_lens.iter().filter(|&&seq_len| rotary && seq_len > most) {
                warnings.push(format!(
                    "sequence length {seq_len} is longer than the {most} positions of the model"
                ));
            }
            return Ok(seq_lens.clone());
        }
        let (kept, dropped): (Vec<usize>, Vec<usize>) =
            Options::default().seq_lens.into_iter().partition(|&seq_len| seq_len <= most);
        if kept.is_empty() {
            let message = format!(
                "none of the default sequence lengths fits the {most} positions of the model: name some"
            );
            return Err(ExportError::option("shapes", message));
        }
        if !dropped.is_empty() {
            warnings.push(format!(
                "default sequence lengths {dropped:?} are left out: the model has {most} positions"
            ));
        }
        Ok(kept)
    }
}

/// A delta rule goes over a sequence piece by piece, so that each length is another program.
fn default_shapes_as(decoder: &Decoder) -> ShapesAs {
    match decoder.layers.iter().any(|layer| layer.mixer.delta_net().is_some()) {
        true => ShapesAs::Functions,
        false => ShapesAs::Enumerated,
    }
}

impl ResolvedOptions {
    /// What is recorded in `export.json`.
    pub(super) fn settings(&self, chosen_by: Option<&Sensitivity>) -> Settings {
        let options = &self.options;
        let precision = match chosen_by {
            Some(sensitivity) => format!("auto:{}", sensitivity.target_bits),
            None => self.precision.to_string(),
        };
        Settings {
            kv: options.kv.iter().copied().collect(),
            seq_lens: options.seq_lens.clone(),
            shapes_as: options.shapes_as,
            contexts: if options.kv.contains(&KvForm::State) { options.contexts.clone() } else { Vec::new() },
            query: options.query,
            batch: options.batch,
            embeddings: options.embeddings,
            head_split: options.head_split,
            opset: options.opset.key().to_owned(),
            compute_units: self.compute_units,
            precision,
            activations: self.activations,
            training_seq_lens: self.training_lengths.clone(),
            config: None,
        }
    }
}
