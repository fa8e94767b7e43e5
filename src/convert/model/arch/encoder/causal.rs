//! Embedders that are decoders without a head: whatever architecture, with the modules of sentence-transformers beside
//! it, as Qwen3-Embedding has them.

use super::{finish, readout};
use crate::checkpoint::{Checkpoint, ConfigError};
use crate::model::arch::{find, unknown, words};
use crate::model::encoder::{Attends, Encoder};
use crate::model::error::ModelError;
use crate::model::tensors::Tensors;

/// The layers of a decoder and what is made of their hidden states. A head that is stored is left.
pub(super) fn embedder(checkpoint: &Checkpoint) -> Result<Encoder, ModelError> {
    let config_error = |problem| ModelError::Config { path: checkpoint.path.clone(), problem };
    let words = words(&checkpoint.config).map_err(config_error)?;
    let Some(architecture) = find(&words, checkpoint) else { return Err(unknown(&words, checkpoint)) };
    let mut tensors = Tensors::new(checkpoint, architecture.prefixes, architecture.probe).without_head();
    let decoder = (architecture.build)(&checkpoint.config, &mut tensors).map_err(config_error)?;
    let not_plain = || ConfigError {
        key: "model_type".to_owned(),
        problem: format!("is a {} model, of which no embedder is made", architecture.name),
    };
    let encoder = Encoder::of_decoder(decoder, Attends::Causally);
    let mut encoder = encoder.ok_or_else(|| config_error(not_plain()))?;
    if let Some(sentence) = &checkpoint.sentence {
        encoder.readout =
            Some(readout::of_modules(sentence, encoder.hidden, &mut tensors).map_err(config_error)?);
    }
    finish(encoder, checkpoint, tensors, architecture.harmless)
}
