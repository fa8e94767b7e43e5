//! Sequence lengths that were trained against those that are exported.

use std::path::Path;

use serde::Deserialize;

use super::error::ExportError;
use super::options::ResolvedOptions;
use crate::config::{self, ConfigFileError};
use crate::vocabulary::KvForm;

/// A training configuration as far as it is read here; its other keys are the trainer's.
#[derive(Deserialize)]
struct TrainingConfig {
    train: Option<Train>,
}

#[derive(Deserialize)]
struct Train {
    seq_lengths: Option<Vec<usize>>,
}

/// The key `train.seq_lengths` of a training configuration.
pub fn read_lengths(path: &Path) -> Result<Vec<usize>, ConfigFileError> {
    let config: TrainingConfig = config::load(path)?;
    config.train.and_then(|train| train.seq_lengths).ok_or_else(|| {
        ConfigFileError::new(path, "has no key `train.seq_lengths`")
            .with_help("a training configuration lists the sequence lengths that were trained there")
    })
}

impl ResolvedOptions {
    /// Fails if a sequence length was not trained, and warns of trained lengths that are not exported.
    pub(super) fn check_training(&mut self, trained: Option<&[usize]>) -> Result<(), ExportError> {
        let Some(trained) = trained else { return Ok(()) };
        let options = &self.options;
        let mut exported: Vec<usize> = Vec::new();
        if options.kv.iter().any(|&form| form != KvForm::State) {
            exported.extend(&options.seq_lens);
        }
        if options.kv.contains(&KvForm::State) {
            exported.extend(&options.contexts);
        }
        if let Some(&seq_len) = exported.iter().find(|seq_len| !trained.contains(seq_len)) {
            return Err(ExportError::Untrained { seq_len, trained: trained.to_vec() });
        }
        let missing: Vec<usize> =
            trained.iter().copied().filter(|length| !exported.contains(length)).collect();
        if !missing.is_empty() {
            self.warnings.push(format!("trained lengths {missing:?} are not exported"));
        }
        self.training_lengths = Some(trained.to_vec());
        Ok(())
    }
}
