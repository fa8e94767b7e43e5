//! Every rule, one file per rule or tight family, one table.

use super::finding::{Place, Sink};
use super::rule::{Check, Confidence, Needs, Rule, Severity};
use super::{Platform, Subject};
use crate::mil::ValueId;
use crate::tensor::{DType, shape};
use crate::view::{Graph, Op};

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

/// Every rule, in the order of their ids.
pub(super) static RULES: &[&Rule] = &[
    &data_type::A01,
    &data_type::A02,
    &data_type::A03,
    &limit::A04,
    &limit::A05,
    &limit::A06,
    &limit::A07,
    &limit::A08,
    &padding::A09,
    &padding::A10,
    &flexible_shape::A11,
    &flexible_shape::A12,
    &flexible_shape::A13,
    &state_form::A14,
    &state_form::A15,
    &state_form::A16,
    &state_form::A17,
    &state_update::A18,
    &state_update::A19,
    &state_update::A20,
    &unplaced::A21,
    &embedding::A22,
    &embedding::A23,
    &unplaced::A24,
    &unplaced::A25,
    &unplaced::A26,
    &unplaced::A27,
    &unplaced::A28,
    &attention::A29,
    &attention::A30,
    &attention::A31,
    &nan::A32,
    &attention::A33,
    &norm::A34,
    &norm::A35,
    &activation::A36,
    &head::A37,
    &key_sharing::A38,
    &layout::A39,
    &convolution::A40,
    &linear_quantization::A41,
    &linear_quantization::A42,
    &palette::A43,
    &palette::A44,
    &palette::A45,
    &activation_quantization::A46,
    &palette::A47,
    &size::A48,
    &size::A49,
    &head::A50,
    &size::A51,
    &context::A52,
    &context::A53,
    &calibration::A54,
    &run::A55,
    &run::A56,
    &policy::C01,
    &shape_policy::C02,
    &policy::C03,
    &policy::C04,
    &shape_policy::C05,
    &shape_policy::C06,
    &policy::C07,
];
