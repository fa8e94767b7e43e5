//! Weights as constants that are converted to fp16 while they are written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::error::{LowerError, Result};
use super::fp16_stream::Fp16Stream;
use super::read_stats::ReadStats;
use crate::model::Weight;
use anemeter_kernels::tensor::{DType, shape};
use anemeter_mil::{Literal, LiteralData, Payload, TensorType};

/// The weights of one package. Functions that use the same weight get the same bytes, so that the package
/// holds them once.
pub(super) struct Weights {
    payloads: BTreeMap<String, Arc<dyn Payload>>,
    stats: Arc<ReadStats>,
}

/// A weight as an operation wants it.
pub(super) struct WeightRequest<'a> {
    /// Its place in the model.
    pub(super) at: &'a str,
    pub(super) weight: &'a Weight,
    /// The shape the model implies.
    pub(super) expected: &'a [usize],
    /// Its rows, or a part of them.
    pub(super) rows: Range<usize>,
    /// The shape of the constant.
    pub(super) shape: &'a [usize],
}

impl Weights {
    pub(super) fn new(stats: Arc<ReadStats>) -> Weights {
        Weights { payloads: BTreeMap::new(), stats }
    }

    /// A weight as an fp16 constant.
    pub(super) fn literal(&mut self, wanted: &WeightRequest<'_>) -> Result<Literal> {
        let WeightRequest { at, weight, expected, rows, shape } = wanted;
        if weight.shape[..] != **expected {
            return Err(LowerError::Weight {
                at: (*at).to_owned(),
                name: weight.name.clone(),
                found: weight.shape.to_vec(),
                expected: expected.to_vec(),
            });
        }
        let row = shape::element_count(&expected[1..]);
        let end = row.and_then(|row| row.checked_mul(rows.end)).and_then(|n| n.checked_mul(2));
        let (Some(row), Some(_)) = (row, end) else {
            return Err(LowerError::model(at, format!("weight `{}` is too large", weight.name)));
        };
        let key = format!("{at} {}..{}", rows.start, rows.end);
        let payload = self.payloads.entry(key).or_insert_with(|| {
            Arc::new(Fp16Stream::new((*weight).clone(), rows.start * row..rows.end * row, self.stats.clone()))
        });
        Ok(Literal {
            ty: TensorType::fixed(DType::F16, shape).into(),
            data: LiteralData::Stream(payload.clone()),
        })
    }
}
