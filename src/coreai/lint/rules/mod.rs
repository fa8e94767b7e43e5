//! Every rule, one file per rule or tight family, one table.

use super::graph::{GraphView, dims, element};
use super::{Check, Confidence, Rule, RuleText, Severity};
use crate::{Dim, Scalar};

#[cfg(test)]
use super::testing::{Draft, fixed};

mod cache;
mod data_type;
mod non_finite;
mod quantization;
mod rank;
mod version;

/// Every rule, in the order of their ids.
pub(super) static RULES: &[&Rule] = &[
    &quantization::PER_BLOCK_INTEGERS,
    &quantization::SCALE_RANK,
    &non_finite::FP16_INFINITY,
    &data_type::FP32_LITERAL,
    &rank::RANK_ABOVE_5,
    &cache::DATA_INDEXED_UPDATE,
    &cache::LONG_CACHE,
    &version::DIALECT_VERSION,
];
