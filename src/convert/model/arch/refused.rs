//! Models that are known and not exported: why, and what to take instead.

use crate::checkpoint::Checkpoint;
use crate::model::error::ModelError;

/// A kind of model that is refused.
struct Refused {
    /// Entries of `architectures` and values of `model_type`.
    words: &'static [&'static str],
    /// Why.
    reason: &'static str,
    /// What to take instead.
    instead: &'static str,
}

const REFUSED: &[Refused] = &[Refused {
    words: &["Gemma3nForCausalLM", "Gemma3nForConditionalGeneration", "gemma3n_text", "gemma3n"],
    reason: "its layers predict and correct four residual streams (AltUp) and keep the largest activations of a row only, and no \
             function here does either",
    instead: "export Gemma 4 E2B or E4B, which has its per-layer embeddings without them",
}];

/// The error of a checkpoint that some of the words name, if it is refused.
pub(super) fn refusal(words: &[&str], checkpoint: &Checkpoint, found: String) -> Option<ModelError> {
    let refused = REFUSED.iter().find(|refused| words.iter().any(|word| refused.words.contains(word)))?;
    Some(ModelError::Refused {
        path: checkpoint.path.clone(),
        found,
        reason: refused.reason,
        instead: refused.instead,
    })
}
