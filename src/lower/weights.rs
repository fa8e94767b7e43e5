//! Weights as constants that are converted to fp16 while they are written.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::error::{LowerError, Result};
use crate::mil::{Literal, LiteralData, Payload, Quantised, TensorType};
use crate::model::{Integers, Weight};
use crate::tensor::{DType, shape};

/// Elements that are converted at a time.
const STEP: usize = 1 << 16;

/// The weights of one package. Functions that use the same weight get the same bytes, so that the package
/// holds them once.
#[derive(Default)]
pub(super) struct Weights {
    payloads: BTreeMap<String, Arc<dyn Payload>>,
}

/// A weight as an operation wants it.
pub(super) struct Wanted<'a> {
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
    /// A weight as an fp16 constant.
    pub(super) fn literal(&mut self, wanted: &Wanted<'_>) -> Result<Literal> {
        let Wanted { at, weight, expected, rows, shape } = wanted;
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
            Arc::new(Half { weight: (*weight).clone(), range: rows.start * row..rows.end * row })
        });
        Ok(Literal {
            ty: TensorType::fixed(DType::F16, shape).into(),
            data: LiteralData::Stream(payload.clone()),
        })
    }
}

/// A range of a weight's elements as fp16.
struct Half {
    weight: Weight,
    range: Range<usize>,
}

impl Payload for Half {
    fn byte_len(&self) -> u64 {
        self.range.len() as u64 * 2
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut floats = vec![0.0; STEP.min(self.range.len())];
        let mut halves = vec![f16::ZERO; floats.len()];
        let mut start = self.range.start;
        while start < self.range.end {
            let end = self.range.end.min(start + STEP);
            let (floats, halves) = (&mut floats[..end - start], &mut halves[..end - start]);
            self.weight.read(start..end, floats);
            halves.convert_from_f32_slice(floats);
            if let Some(bad) = halves.iter().position(|half| !half.is_finite()) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "weight `{}`: element {} is {}, outside the range of fp16",
                        self.weight.name,
                        start + bad,
                        floats[bad]
                    ),
                ));
            }
            out.write_all(bytemuck::cast_slice(halves))?;
            start = end;
        }
        Ok(())
    }

    fn quantised(&self) -> Option<Arc<dyn Quantised>> {
        let (integers, first) = self.weight.integers()?;
        let first = first + self.range.start;
        let is_whole = first.is_multiple_of(integers.block());
        is_whole
            .then(|| -> Arc<dyn Quantised> { Arc::new(Blocks { first: first / integers.block(), integers }) })
    }
}

/// The blocks of a range of a weight's elements.
struct Blocks {
    integers: Integers,
    first: usize,
}

impl Quantised for Blocks {
    fn bits(&self) -> u32 {
        self.integers.bits()
    }

    fn is_signed(&self) -> bool {
        self.integers.is_signed()
    }

    fn block(&self) -> usize {
        self.integers.block()
    }

    fn read(&self, blocks: Range<usize>, codes: &mut [u8], scales: &mut [f32], minimums: &mut [f32]) {
        self.integers.read(self.first + blocks.start..self.first + blocks.end, codes, scales, minimums);
    }
}
