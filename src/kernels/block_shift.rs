//! Offsets that are subtracted from the 4-bit integers of a block, as they are stored.
//!
//! [`Simd::dot_int4`] subtracts eight from every code. What is left to subtract, the shift, is the same number for all integers
//! of a block, so that a product needs it once for each lane, times the sum of the activations:
//!
//! ```text
//! sum of (q - offset) x = sum of (q - 8) x - (offset - 8) (sum of x)        unsigned codes
//! sum of (w - offset) x = sum of  w      x -  offset      (sum of x)        signed codes
//! ```

use half::f16;

use super::simd::{QUAD, SIGNED, Simd};
use super::weight_gemv::Int4Codes;
use crate::tensor::DType;

/// The shift of every block.
#[derive(Clone, Copy)]
pub(super) enum Shifts<'a> {
    /// The same for all.
    Same(f32),
    /// Offsets of four bits. Flipped as the codes are, they are shifts that are too large by eight.
    Nibbles(&'a [u8], u8),
    /// fp16 offsets, and what is added to them.
    F16(&'a [f16], f32),
    /// f32 offsets, and what is added to them.
    F32(&'a [f32], f32),
}

impl<'a> Shifts<'a> {
    /// Those of weights, if their offsets are of a type that weights can have.
    #[inline(always)]
    pub(super) fn of(codes: Int4Codes<'a>) -> Option<Shifts<'a>> {
        let (base, flip, own) = match codes.is_signed {
            true => (0.0, SIGNED & 15, DType::I4),
            false => (-8.0, 0, DType::U4),
        };
        let Some(offsets) = codes.offsets else { return Some(Shifts::Same(base)) };
        match offsets.dtype() {
            DType::F16 => offsets.slice().ok().map(|values| Shifts::F16(values, base)),
            DType::F32 => offsets.slice().ok().map(|values| Shifts::F32(values, base)),
            dtype => (dtype == own).then(|| Shifts::Nibbles(offsets.bytes(), flip)),
        }
    }

    /// Whether there is anything to subtract.
    pub(super) fn are_some(&self) -> bool {
        !matches!(self, Shifts::Same(0.0))
    }

    /// The shift of a block.
    #[inline(always)]
    pub(super) fn at(&self, block: usize) -> f32 {
        match *self {
            Shifts::Same(shift) => shift,
            Shifts::Nibbles(bytes, flip) => nibble(bytes, flip, block),
            Shifts::F16(values, base) => values[block].to_f32() + base,
            Shifts::F32(values, base) => values[block] + base,
        }
    }

    /// The shift of each of four blocks in the lanes of the block.
    #[inline(always)]
    pub(super) fn spread<S: Simd>(&self, s: S, blocks: [usize; QUAD]) -> S::W {
        match *self {
            Shifts::Same(shift) => s.splat_wide(shift),
            Shifts::Nibbles(bytes, flip) => s.spread(&blocks.map(|block| nibble(bytes, flip, block))),
            Shifts::F16(values, base) => {
                s.add_wide(s.spread_f16(&blocks.map(|block| values[block])), s.splat_wide(base))
            }
            Shifts::F32(values, base) => {
                s.add_wide(s.spread(&blocks.map(|block| values[block])), s.splat_wide(base))
            }
        }
    }
}

/// The shift that an offset of four bits stands for.
#[inline(always)]
fn nibble(bytes: &[u8], flip: u8, block: usize) -> f32 {
    f32::from(bytes[block / 2] >> (block % 2 * 4) & 15 ^ flip) - 8.0
}
