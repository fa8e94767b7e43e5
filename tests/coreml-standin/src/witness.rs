//! What Core ML was asked for, as it was understood.

use std::sync::{Mutex, PoisonError};

/// How a function was to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The function; `None` is the default one.
    pub function: Option<String>,
    /// `MLComputeUnits`: 0 the CPU, 1 and the GPU, 2 all, 3 the CPU and the Neural Engine.
    pub units: isize,
    /// `MLReshapeFrequencyHint`: 0 frequent, 1 infrequent.
    pub reshape_frequency: isize,
    /// `MLSpecializationStrategy`: 0 default, 1 fast prediction.
    pub specialization: isize,
}

static LAST: Mutex<Option<Asked>> = Mutex::new(None);

/// How the last function was to be loaded, whether or not it could be.
pub fn last_load() -> Option<Asked> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub(crate) fn asked(load: Asked) {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(load);
}
