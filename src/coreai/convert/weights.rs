//! Constants: bytes in place or in the weight section.

use std::collections::HashMap;
use std::sync::Arc;

use half::f16;

use super::body::{Body, INLINE_BYTES, tensor};
use super::error::{Result, refuse};
use super::types;
use crate::program::{Attribute, Resource, ResourceData, ValueId};
use anemeter_kernels::tensor::DType;
use anemeter_mil::{Literal, LiteralData};

/// The constants of a program. The functions that use a weight share one resource.
#[derive(Default)]
pub(super) struct Weights {
    resources: HashMap<(usize, u64), Resource>,
}

impl Weights {
    /// A constant of the program.
    pub(super) fn literal(&mut self, body: &mut Body, literal: &Literal) -> Result<ValueId> {
        let Some(ty) = literal.ty.tensor() else { refuse!("a constant is a {}, not a tensor", literal.ty) };
        self.shaped(body, literal, ty.dtype, &types::dims(ty)?)
    }

    /// The bytes of a constant as elements of another type or under another shape.
    pub(super) fn shaped(
        &mut self,
        body: &mut Body,
        literal: &Literal,
        dtype: DType,
        dims: &[u64],
    ) -> Result<ValueId> {
        let ty = tensor(types::element(dtype)?, dims);
        // The keys stay unique because the resources keep what they point at.
        let (key, data) = match &literal.data {
            LiteralData::Immediate(bytes) | LiteralData::Blob(bytes) => {
                let is_small = bytes.len() <= INLINE_BYTES;
                if is_small || matches!(literal.data, LiteralData::Immediate(_)) {
                    check_finite(dtype, bytes)?;
                }
                if is_small && !dtype.is_sub_byte() {
                    return Ok(body.constant(ty, bytes));
                }
                ((bytes.as_ptr() as usize, bytes.len() as u64), ResourceData::Bytes(bytes.clone()))
            }
            LiteralData::Stream(payload) => {
                let key = (Arc::as_ptr(payload).cast::<u8>() as usize, payload.byte_len());
                (key, ResourceData::Stream(payload.clone()))
            }
            LiteralData::Strings(_) | LiteralData::Items(_) | LiteralData::Entries(_) => {
                refuse!("a constant is a {}, which no tensor of numbers can hold", literal.ty)
            }
        };
        let resource = self.resources.entry(key).or_insert_with(|| Resource(Arc::new(data)));
        Ok(body.stored(ty, Attribute::DenseResource(resource.clone())))
    }
}

/// Refuses infinities and NaN: fp16 that is not finite gives wrong numbers on the Neural Engine.
fn check_finite(dtype: DType, bytes: &[u8]) -> Result<()> {
    let found = match dtype {
        DType::F16 => {
            let values = bytes.as_chunks::<2>().0.iter().map(|&b| f16::from_le_bytes(b).to_f32());
            first_not_finite(values)
        }
        DType::F32 => first_not_finite(bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b))),
        _ => None,
    };
    let Some((index, value)) = found else { return Ok(()) };
    let instead = match value == f32::NEG_INFINITY {
        true => "a large negative number such as -1e4 does the same in a mask",
        false => "find out why the constant is not finite",
    };
    refuse!(
        "a constant holds {value} at element {index}, with which the Neural Engine computes wrong numbers; {instead}"
    );
}

fn first_not_finite(values: impl Iterator<Item = f32>) -> Option<(usize, f32)> {
    values.enumerate().find(|(_, value)| !value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::error::Refusal;

    #[test]
    fn what_is_not_finite_is_refused() {
        for value in [f16::NEG_INFINITY, f16::INFINITY, f16::NAN] {
            let bytes = [f16::ONE, value].map(f16::to_le_bytes).concat();
            let Refusal(message) = check_finite(DType::F16, &bytes).unwrap_err();
            assert!(message.starts_with(&format!("a constant holds {value} at element 1, ")), "{message}");
            assert!(check_finite(DType::U16, &bytes).is_ok());
            assert!(check_finite(DType::F32, &value.to_f32().to_le_bytes()).is_err());
        }
        assert!(check_finite(DType::F16, &f16::MIN.to_le_bytes()).is_ok());
    }
}
