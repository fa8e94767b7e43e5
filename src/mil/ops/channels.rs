//! Constants that hold one number per channel, the second dimension of `x`.

use super::prelude::*;

/// Checks that the parameters that were given are vectors as long as `x` has channels.
pub(super) fn check(call: &Call<'_>, x: &TensorType, names: &[&str]) -> Result {
    let channels = x.shape.get(1).and_then(|dim| dim.size());
    for name in names {
        let Some(vector) = call.opt_ty(name)? else { continue };
        refuse_if!(vector.rank().is_some_and(|rank| rank != 1), "`{name}` is a {vector}, not a vector");
        match (vector.shape[0].size(), channels) {
            (Some(length), Some(channels)) if length != channels => {
                refuse!("`{name}` has {length} elements for {channels} channels");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that `x` is `[batch, channel, ...]` of an allowed rank.
pub(super) fn check_rank(x: &TensorType, allowed: std::ops::RangeInclusive<usize>) -> Result {
    match x.rank() {
        Some(rank) if !allowed.contains(&rank) => {
            refuse!("`x` has rank {rank}, outside {} to {}", allowed.start(), allowed.end())
        }
        _ => Ok(()),
    }
}
