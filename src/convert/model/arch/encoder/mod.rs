//! The encoders: one file each, and the table that finds the one a configuration names.

mod bert;
mod causal;
mod embedding_gemma;
mod modernbert;
mod readout;
mod roberta;
#[cfg(test)]
mod tests;

use super::words;
use crate::checkpoint::{Checkpoint, Config};
use crate::model::encoder::{Encoder, ModelGraph};
use crate::model::error::ModelError;
use crate::model::graph::Decoder;
use crate::model::keys::Result;
use crate::model::tensors::{Prefix, Tensors};

/// How a kind of encoder is found and built.
pub struct EncoderArchitecture {
    /// Its name.
    pub name: &'static str,
    /// Entries of `architectures` that select it.
    pub classes: &'static [&'static str],
    /// Values of `model_type` that select it where no class is named.
    pub model_types: &'static [&'static str],
    /// Whether a checkpoint of these words is an encoder at all.
    applies: fn(&Checkpoint) -> bool,
    prefixes: &'static [Prefix],
    /// The embedding, which tells the prefix.
    probe: &'static str,
    /// Stored tensors that hold nothing of the encoder.
    harmless: fn(&str) -> bool,
    build: fn(&Source<'_>, &mut Tensors<'_>) -> Result<Encoder>,
}

/// What an encoder is built from, beside its tensors.
struct Source<'a> {
    config: &'a Config,
    /// The class that the configuration names.
    class: &'a str,
}

impl Source<'_> {
    /// Whether the class has a classifier over the whole text.
    fn classifies(&self) -> bool {
        self.class.ends_with("ForSequenceClassification")
    }
}

/// Every encoder that can be built.
pub const ENCODERS: &[EncoderArchitecture] =
    &[bert::DEF, roberta::DEF, modernbert::DEF, embedding_gemma::DEF];

/// The model of a checkpoint, of whatever kind, once every tensor is known to be there in its shape and none is left over.
pub fn build_any(checkpoint: &Checkpoint) -> std::result::Result<ModelGraph, ModelError> {
    let config_error = |problem| ModelError::Config { path: checkpoint.path.clone(), problem };
    let words = words(&checkpoint.config).map_err(config_error)?;
    let named = |encoder: &&EncoderArchitecture| encoder.is_named(words[0]) && (encoder.applies)(checkpoint);
    let entry = ENCODERS.iter().find(named);
    match entry {
        Some(entry) => {
            let source = Source { config: &checkpoint.config, class: words[0] };
            entry.encoder(checkpoint, &source).map(ModelGraph::Encoder)
        }
        None if checkpoint.sentence.is_some() => causal::embedder(checkpoint).map(ModelGraph::Encoder),
        None => super::decoder_of(checkpoint).map(ModelGraph::Decoder),
    }
}

/// The decoder of a checkpoint; an error if it is an encoder.
pub fn build(checkpoint: &Checkpoint) -> std::result::Result<Decoder, ModelError> {
    match build_any(checkpoint)? {
        ModelGraph::Decoder(decoder) => Ok(decoder),
        ModelGraph::Encoder(encoder) => {
            Err(ModelError::Encoder { path: checkpoint.path.clone(), architecture: encoder.architecture })
        }
    }
}

impl EncoderArchitecture {
    fn is_named(&self, word: &str) -> bool {
        self.classes.contains(&word) || self.model_types.contains(&word) || self.name == word
    }

    fn encoder(
        &self,
        checkpoint: &Checkpoint,
        source: &Source<'_>,
    ) -> std::result::Result<Encoder, ModelError> {
        let config_error = |problem| ModelError::Config { path: checkpoint.path.clone(), problem };
        let mut tensors = Tensors::new(checkpoint, self.prefixes, self.probe);
        let mut encoder = (self.build)(source, &mut tensors).map_err(config_error)?;
        if let (None, Some(sentence)) = (&encoder.readout, &checkpoint.sentence) {
            encoder.readout =
                Some(readout::of_modules(sentence, encoder.hidden, &mut tensors).map_err(config_error)?);
        }
        finish(encoder, checkpoint, tensors, self.harmless)
    }
}

/// The encoder, if nothing was wrong with its tensors.
fn finish(
    encoder: Encoder,
    checkpoint: &Checkpoint,
    tensors: Tensors<'_>,
    harmless: fn(&str) -> bool,
) -> std::result::Result<Encoder, ModelError> {
    let problems = tensors.finish(harmless);
    match problems.is_empty() {
        true => Ok(encoder),
        false => Err(ModelError::Tensors {
            path: checkpoint.path.clone(),
            architecture: encoder.architecture,
            problems,
        }),
    }
}
