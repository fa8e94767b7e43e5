//! Which operations give consecutive elements of their operand, so that nothing needs to be computed.

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
