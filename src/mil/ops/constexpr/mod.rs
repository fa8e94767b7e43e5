//! Compressed weights: operations on constants whose results are decoded where they are used.
//!
//! Decoders keep the compressed tensors as they are in the file and compose: any data-carrying operand may be
//! the result of another constexpr operation.

pub(super) mod affine;
pub(super) mod cast;
pub(super) mod lut;
mod mask;
mod source;
pub(super) mod sparse;

use std::ops::Range;

/// Calls `f(elements, their place in the output)` for pieces of a range small enough to stay in cache.
fn for_each_chunk(range: Range<usize>, out: &mut [f32], mut f: impl FnMut(Range<usize>, &mut [f32])) {
    const CHUNK: usize = 2048;
    let mut at = range.start;
    for out in out[..range.len()].chunks_mut(CHUNK) {
        f(at..at + out.len(), out);
        at += out.len();
    }
}
