//! Which operations give elements of their operand as they are, so that nothing needs to be computed.

use std::ops::Range;

use super::{slice, transpose};
use crate::mil::op::Call;

/// The first element of `x` that a call gives, if its result is elements of `x` one after the other.
///
/// `infer` must have accepted the call, and the shape of `x` must be known.
pub fn first_element(name: &str, call: &Call<'_>) -> Option<usize> {
    match name {
        "identity" | "reshape" | "reshape_like" | "expand_dims" | "squeeze" | "flatten2d" => Some(0),
        "transpose" => transpose::keeps_order(call).then_some(0),
        "slice_by_index" => slice::first_element(call),
        _ => None,
    }
}

/// The run of one axis of `x` that a call gives, if it gives that of everything.
///
/// `infer` must have accepted the call, and the shape of `x` must be known.
pub fn run_of(axis: usize, name: &str, call: &Call<'_>) -> Option<Range<usize>> {
    match name {
        "slice_by_index" => slice::run_of(axis, call),
        _ => None,
    }
}
