//! Shapes that were trained against shapes that are exported.

use std::path::Path;

use serde::Deserialize;

use super::error::ExportError;
use super::wishes::Settled;
use crate::bundle::KvForm;
use crate::config::{self, ConfigFileError};

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

impl Settled {
    /// Fails if a shape was not trained, and warns of trained lengths that are not exported.
    pub(super) fn check_training(&mut self, trained: Option<&[usize]>) -> Result<(), ExportError> {
        let Some(trained) = trained else { return Ok(()) };
        let options = &self.options;
        let mut exported: Vec<usize> = Vec::new();
        if options.kv.iter().any(|&form| form != KvForm::State) {
            exported.extend(&options.shapes);
        }
        if options.kv.contains(&KvForm::State) {
            exported.extend(&options.contexts);
        }
        if let Some(&shape) = exported.iter().find(|shape| !trained.contains(shape)) {
            return Err(ExportError::Untrained { shape, trained: trained.to_vec() });
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
