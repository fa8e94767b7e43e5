//! A parameter `axes` that lists dimensions of `x`; left out, it means all of them.

use smallvec::{SmallVec, smallvec};

use crate::mil::op::{Call, OpError};
use crate::tensor::shape;

/// For each dimension of an `x` of the given rank, whether `axes` names it.
pub(super) fn named(call: &Call<'_>, rank: usize) -> Result<SmallVec<[bool; 6]>, OpError> {
    if !call.has("axes") {
        return Ok(smallvec![true; rank]);
    }
    let mut named = smallvec![false; rank];
    for given in call.ints("axes")? {
        let axis = shape::axis(given, rank)
            .ok_or_else(|| OpError::new(format!("`axes` has {given}, outside a tensor of rank {rank}")))?;
        if std::mem::replace(&mut named[axis], true) {
            return Err(OpError::new(format!("`axes` names dimension {axis} twice")));
        }
    }
    Ok(named)
}
