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

/// Refuses infinities: minus infinity in fp16 gives wrong numbers on the Neural Engine.
fn check_finite(dtype: DType, bytes: &[u8]) -> Result<()> {
    let is_infinite = match dtype {
        DType::F16 => bytes.as_chunks::<2>().0.iter().any(|&b| f16::from_le_bytes(b) == f16::NEG_INFINITY),
        DType::F32 => bytes.as_chunks::<4>().0.iter().any(|&b| f32::from_le_bytes(b) == f32::NEG_INFINITY),
        _ => false,
    };
    if is_infinite {
        refuse!(
            "a constant holds minus infinity, with which the Neural Engine computes wrong numbers; a large negative \
             number such as -1e4 does the same in a mask"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_infinity_is_refused() {
        let bytes = f16::NEG_INFINITY.to_le_bytes();
        assert!(check_finite(DType::F16, &bytes).is_err());
        assert!(check_finite(DType::U16, &bytes).is_ok());
    }
}
