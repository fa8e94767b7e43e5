//! States of fixed size that a caller carries from one prediction to the next: inputs of `decode`, and outputs of every
//! function that keeps something.

/// The latest inputs of the convolutions of all layers, `[batch, channels, 1, kernel - 1]`, oldest first.
pub const CONV_STATE: &str = "conv_state";
/// The matrices of the delta rules of all layers, `[batch, heads, key_dim, value_dim]`.
pub const DELTA_STATE: &str = "delta_state";
/// Every such state.
pub const STATES: [&str; 2] = [CONV_STATE, DELTA_STATE];

/// Selects the latest tokens of a sequence with padding, `[batch, 1, tokens, kernel - 1]`: a one in each column, or none
/// before the sequence begins.
pub const LATEST: &str = "latest";
/// Tells tokens from padding, `[batch, 1, 1, tokens]`: one, or zero.
pub const PRESENT: &str = "present";

/// The output that a state of the next prediction comes from.
pub fn output_of(state: &str) -> String {
    format!("{state}_new")
}
