//! The export of an encoder: the flow of a decoder without cache, head and measurements on logits.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::about::ModelCard;
use super::options::{Chunking, ExportOptions, ResolvedOptions};
use super::phases::Phases;
use super::{
    ExportError, PrecisionPlan, Progress, Request, Writing, chunking, describe, remarks, write_tokenizer,
};
use crate::bundle::{self, Architecture, Bundle, EncoderOutput, Manifest, Origin, Settings};
use crate::checkpoint::Checkpoint;
use crate::compress::{Precision, Solutions};
use crate::lower::{Options, ReadStats, lower_encoder};
use crate::model::{Encoder, Gives, Stage, Weight};
use crate::vocabulary::{Embeddings, KvForm, Layout, Rotate};

/// Sequence lengths, unless some are named.
const SEQ_LENS: [usize; 3] = [128, 256, 512];

/// Exports an encoder. The bundle appears whole or not at all.
pub(super) fn export(
    request: &Request,
    (checkpoint, encoder): (&Checkpoint, &Encoder),
    mut phases: Phases,
    progress: &dyn Progress,
) -> Result<Bundle, ExportError> {
    if request.options.layout() != Layout::Anemeter {
        let message = "is for language models, and this is an encoder: leave it out";
        return Err(ExportError::option("layout", message));
    }
    if request.precision != PrecisionPlan::Fixed {
        let message = "is chosen by logits, which an encoder has not: name one, without a calibration";
        return Err(ExportError::option("precision", message));
    }
    if request.options.range_repair == Some(true) {
        return Err(ExportError::option("range_repair", "is for language models; an encoder has none yet"));
    }
    if request.options.rotate.is_some_and(|rotate| rotate != Rotate::Off) {
        return Err(ExportError::option("rotate", "is for decoders, and this is an encoder"));
    }
    let longest = longest(checkpoint, encoder);
    let mut resolved = request.options.resolve_encoder(encoder, longest)?;
    resolved.check_training(request.training_lengths.as_deref())?;
    let stats = Arc::new(ReadStats::new(checkpoint.shards.iter().map(|shard| &shard.bytes[..])));
    let chunks = phases.time("lower", || lower_encoder(encoder, &resolved.options, &stats))?;
    request.destination().make(|folder| {
    let name = request.name.clone().unwrap_or_else(|| checkpoint.name());
    let about = format!("{name}: a {} encoder of {} layers", encoder.architecture, encoder.layers.len());
    let card = ModelCard::new(&request.options, checkpoint, about);
    let writing = Writing::new(request, folder, &resolved, card);
    let (chunks, compressed) = writing.chunks(chunks, &Solutions::default(), &mut phases, progress)?;
    phases.read(&checkpoint.shards, &stats);
    resolved.warnings.extend(remarks(checkpoint));
    if encoder.readout.is_none() {
        resolved.warnings.push(
            "nothing says how hidden states become one vector, so the bundle gives those of all tokens: put the \
             modules.json of sentence-transformers beside the checkpoint and export again for one"
                .to_owned(),
        );
    }
    Ok(Manifest {
        schema: bundle::SCHEMA.to_owned(),
        tool: describe::tool(),
        origin: Origin::Exported,
        name,
        architecture: Some(architecture(encoder)),
        checkpoint: Some(phases.time("digest", || checkpoint.describe())),
        settings: Some(Settings {
            kv: Vec::new(),
            config: request
                .config
                .as_deref()
                .map(|path| super::destination::from_bundle(&request.output, path)),
            ..resolved.settings(None)
        }),
        contract: None,
        encoder: Some(described(checkpoint, encoder, longest)),
        chunks,
        host_embeddings: None,
        tokenizer: write_tokenizer(checkpoint, folder)?,
        compression: compressed.finish(&resolved.precision, None)?,
        sensitivity: None,
        range_repair: None,
        rotated: None,
        warnings: resolved.warnings,
        profile: phases.finish(),
    })
    })
}

/// Tokens of the longest text: what the checkpoint says of texts, or else the positions of the model.
fn longest(checkpoint: &Checkpoint, encoder: &Encoder) -> usize {
    let said = checkpoint.sentence.as_ref().and_then(|sentence| sentence.max_seq_len);
    said.map_or(encoder.max_positions, |said| said.min(encoder.max_positions))
}

/// The sizes of an encoder.
pub fn architecture(encoder: &Encoder) -> Architecture {
    let first = encoder.layers.first().map(|layer| &layer.attention.part);
    Architecture {
        name: encoder.architecture.to_owned(),
        hidden: encoder.hidden,
        vocabulary: encoder.vocabulary,
        layers: encoder.layers.len(),
        heads: first.map_or(0, |a| a.heads),
        kv_heads: first.map_or(0, |a| a.kv_heads),
        head_dim: first.map_or(0, |a| a.head_dim),
        parameters: encoder.weights().into_iter().map(Weight::element_count).map(|count| count as u64).sum(),
        max_positions: encoder.max_positions,
        kv_bytes_per_token: 0,
        state_bytes: 0,
        embedding_scale: encoder.embedding_scale,
        learned_positions: encoder.positions.is_some(),
        per_layer: None,
    }
}

fn described(checkpoint: &Checkpoint, encoder: &Encoder, max_tokens: usize) -> bundle::Encoder {
    let sentence = checkpoint.sentence.clone().unwrap_or_default();
    let readout = encoder.readout.as_ref();
    bundle::Encoder {
        attends: encoder.attends,
        output: match readout.map(|readout| readout.gives) {
            Some(Gives::Embedding) => EncoderOutput::Embedding,
            Some(Gives::Scores) => EncoderOutput::Scores,
            None => EncoderOutput::HiddenStates,
        },
        width: encoder.width(),
        normalized: readout.is_some_and(|readout| matches!(readout.stages.last(), Some(Stage::Normalize))),
        pooling: readout.map(|readout| readout.pooling),
        segment_kinds: encoder.segment_kinds(),
        max_tokens,
        lower_case: sentence.lower_case,
        prompts: sentence.prompts,
        default_prompt: sentence.default_prompt,
    }
}

impl ExportOptions {
    /// Fills in what follows from an encoder whose texts have so many tokens at most.
    fn resolve_encoder(&self, encoder: &Encoder, longest: usize) -> Result<ResolvedOptions, ExportError> {
        self.check_encoder()?;
        let mut warnings = Vec::new();
        let defaults = Options::default();
        let precision = self.precision.clone().unwrap_or_else(|| Precision::Keep.into());
        let chunks = match self.chunks.unwrap_or(Chunking::Auto) {
            Chunking::Count(count) => count,
            Chunking::Auto => {
                chunking::count_encoder(encoder, precision.default.bits(), self.target.unwrap_or_default())
            }
        };
        let options = Options {
            kv: BTreeSet::from([KvForm::None]),
            seq_lens: self.encoder_seq_lens(longest, &mut warnings)?,
            contexts: Vec::new(),
            batch: self.batch.unwrap_or(defaults.batch),
            embeddings: Embeddings::Graph,
            chunks,
            ..defaults
        };
        let compute_units = self.compute_units.unwrap_or_default();
        Ok(ResolvedOptions {
            options,
            warnings,
            training_lengths: None,
            precision,
            formats: self.formats()?,
            activations: self.activations.unwrap_or_default(),
            compute_units,
        })
    }

    /// Refuses options that only decoders have.
    fn check_encoder(&self) -> Result<(), ExportError> {
        if self.mlprogram == Some(false) {
            return Err(ExportError::option("mlprogram", "is false; only ML programs can be written"));
        }
        let cached = self.kv.as_ref().is_some_and(|forms| forms.iter().any(|&form| form != KvForm::None));
        let elsewhere = self.embeddings.is_some_and(|place| place != Embeddings::Graph);
        let of_decoders = [
            ("kv", cached, "no KV cache: leave it out, or say `none`"),
            ("contexts", self.contexts.is_some(), "no KV cache: leave it out"),
            ("query", self.query.is_some(), "no KV cache: leave it out"),
            ("head_split", self.head_split.is_some_and(|parts| parts != 1), "no logits: leave it out"),
            ("embeddings", elsewhere, "its lookup in the graph only: leave it out, or say `graph`"),
        ];
        match of_decoders.into_iter().find(|(_, is_given, _)| *is_given) {
            Some((option, _, why)) => Err(ExportError::option(option, format!("an encoder has {why}"))),
            None => Ok(()),
        }
    }

    fn encoder_seq_lens(
        &self,
        longest: usize,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<usize>, ExportError> {
        if let Some(seq_lens) = &self.enumerate_shapes {
            for seq_len in seq_lens.iter().filter(|&&seq_len| seq_len > longest) {
                warnings.push(format!(
                    "sequence length {seq_len} is longer than the {longest} tokens that texts are cut to"
                ));
            }
            return Ok(seq_lens.clone());
        }
        let kept: Vec<usize> = SEQ_LENS.into_iter().filter(|&seq_len| seq_len <= longest).collect();
        match kept.is_empty() {
            true => {
                let message = format!(
                    "none of the default sequence lengths {SEQ_LENS:?} fits the {longest} tokens of the longest text: \
                     name some"
                );
                Err(ExportError::option("shapes", message))
            }
            false => Ok(kept),
        }
    }
}
