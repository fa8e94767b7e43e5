//! How near a compressed weight is to what it was.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A weight that is stored in fewer bits than it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompressedWeight {
    /// Its name in the program.
    pub name: String,
    /// Its layer; absent for embedding and head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<usize>,
    /// Bits per element, with everything that belongs to it.
    pub bits: f64,
    /// Signal to noise in decibels; absent if nothing is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snr_db: Option<f64>,
}
