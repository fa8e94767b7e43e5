//! A parameter `axes` that lists dimensions of `x`; left out, it means all of them.

use smallvec::{SmallVec, smallvec};

use super::prelude::*;

/// For each dimension of an `x` of the given rank, whether `axes` names it.
pub(super) fn named(call: &Call<'_>, rank: usize) -> Result<SmallVec<[bool; 6]>> {
    if !call.has("axes") {
        return Ok(smallvec![true; rank]);
    }
    let mut named = smallvec![false; rank];
    for given in call.ints("axes")? {
        let axis = shape::axis(given, rank)
            .ok_or_else(|| op_error!("`axes` has {given}, outside a tensor of rank {rank}"))?;
        refuse_if!(std::mem::replace(&mut named[axis], true), "`axes` names dimension {axis} twice");
    }
    Ok(named)
}
