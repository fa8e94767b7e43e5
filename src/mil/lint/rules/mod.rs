//! Every rule, one file per rule or tight family, one table.

use super::finding::{Place, Sink};
use super::rule::Confidence::{Documented, Policy, SingleReport, WidelyReported};
use super::rule::{Check, Needs, Rule, Severity};
use super::{Device, Platform, Subject};
use crate::ValueId;
use crate::graph::{Graph, Op};
use anemeter_kernels::tensor::{DType, Shape, shape};

#[cfg(test)]
use super::{ActivationRange, Target, lint, testing::*};

mod activation;
mod activation_quantization;
mod attention;
mod calibration;
mod context;
mod convolution;
mod data_type;
mod embedding;
mod flexible_shape;
mod head;
mod key_sharing;
mod layout;
mod limit;
mod linear_quantization;
mod nan;
mod norm;
mod padding;
mod palette;
mod pattern;
mod policy;
mod run;
mod shape_policy;
mod size;
mod state_form;
mod state_update;
mod unplaced;

/// The source of rules that are policies.
const CHECKLIST: &str = "the export checklist of this project";

/// Every rule, in the order of their ids.
pub(super) static RULES: &[&Rule] = &[
    &data_type::FP32_COMPUTE,
    &data_type::FP32_CONSTANT_PROMOTION,
    &data_type::INT64_TENSOR,
    &limit::RANK_ABOVE_5,
    &limit::RANK_5,
    &limit::SPATIAL_AXIS_LIMIT,
    &limit::CHANNEL_LIMIT,
    &limit::INNER_DIMENSION_LIMIT,
    &padding::UNALIGNED_LAST_AXIS,
    &padding::SINGLETON_LAST_AXIS,
    &flexible_shape::RANGE_SHAPE,
    &flexible_shape::ENUMERATED_SHAPES_WITH_STATE,
    &flexible_shape::FLEXIBLE_STATE,
    &state_form::UNALIGNED_STATE,
    &state_form::MULTIPLE_STATES,
    &state_form::STATE_NOT_RANK_4,
    &state_form::STATE_NOT_FP16,
    &state_update::STATE_SHIFTED_BY_CONCAT,
    &state_update::STALE_STATE_READ,
    &state_update::DYNAMIC_SLICE_UPDATE,
    &unplaced::SCATTER,
    &embedding::GATHER_AMONG_LAYERS,
    &embedding::LARGE_EMBEDDING,
    &unplaced::CONTROL_FLOW,
    &unplaced::MASK_BUILT_IN_GRAPH,
    &unplaced::DATA_DEPENDENT_SHAPE,
    &unplaced::RECURRENT_LAYER,
    &unplaced::SAMPLING_IN_GRAPH,
    &attention::FUSED_ATTENTION,
    &attention::SOFTMAX_OVER_SPATIAL_AXIS,
    &attention::UNALIGNED_SOFTMAX,
    &nan::NON_FINITE_CONSTANT,
    &attention::SCORES_SCALED_LATE,
    &norm::UNSCALED_SUM_OF_SQUARES,
    &norm::RANK_3_LAYER_NORM,
    &activation::NATIVE_SILU_TANH,
    &head::CONSTANT_MATMUL,
    &key_sharing::REPEATED_KV_HEADS,
    &layout::LAST_AXIS_MOVED,
    &convolution::UNSUPPORTED_WINDOW,
    &linear_quantization::PER_BLOCK_QUANTIZATION,
    &linear_quantization::INT4_PER_CHANNEL,
    &palette::SMALL_PALETTE_GROUP,
    &palette::SCALED_PALETTE,
    &palette::UNUSUAL_PALETTE,
    &activation_quantization::QUANTIZED_ACTIVATIONS,
    &palette::INDIVISIBLE_WEIGHT,
    &size::WEIGHT_SIZE_LIMIT,
    &size::LAYER_COUNT_LIMIT,
    &head::HEAD_OVER_ALL_POSITIONS,
    &size::SMALL_FUNCTION,
    &context::NO_SHORT_CONTEXT,
    &context::MULTIFUNCTION_PREFILL_STATES,
    &calibration::FP16_HEADROOM,
    &run::COMPUTE_UNITS_HIDE_FALLBACK,
    &run::COMPILED_MODEL_ONLY,
    &policy::NOT_ML_PROGRAM,
    &shape_policy::UNTRAINED_SEQUENCE_LENGTH,
    &policy::NORM_NOT_FP16,
    &policy::UNCOMPRESSED_WEIGHTS,
    &shape_policy::SEQUENCE_LENGTH,
    &shape_policy::BATCH_SIZE,
    &policy::OPSET_NEWER_THAN_TARGET,
];
