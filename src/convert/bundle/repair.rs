//! What `export --range-repair` found and changed, in the words of `export.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Factors that keep activations within fp16, which weights and norms of the packages contain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeRepair {
    /// Factor on the residual stream, a power of two: hidden states between chunks are the checkpoint's times it.
    pub stream: f32,
    /// Tokens of the calibration.
    pub tokens: usize,
    /// Digest of the calibration text; absent if tokens were made up, because the checkpoint has no tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The tensor with the largest magnitude in the calibration, without factors.
    pub largest_tensor: String,
    /// That magnitude.
    pub largest: f32,
    /// Tensors beyond half of what fp16 holds, largest first, with the factor that each got.
    pub repaired: Vec<RepairedTensor>,
    /// Factors of the matrices that have one other than 1, by their names in the packages.
    pub weights: BTreeMap<String, f32>,
}

/// A tensor that was beyond half of what fp16 holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairedTensor {
    /// The part of the model that gives it.
    pub tensor: String,
    /// Its largest magnitude without a factor.
    pub largest: f32,
    /// Its factor, a power of two; 1 if none could be given.
    pub factor: f32,
}
