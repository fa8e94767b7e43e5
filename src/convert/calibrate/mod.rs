//! A checkpoint layer by layer: token sequences go through one layer after the other, with the weights of one layer and the
//! hidden states of all sequences in memory. An [`Observer`] sees what every linear map takes and may change its weights
//! before they are applied.
//!
//! [`quantize`] is the observer that chooses codes: each layer gets what the layers before it give with the codes that they
//! got.

mod aside;
mod attention;
mod error;
mod held_out;
mod hidden;
mod layer;
mod linear;
mod outliers;
mod quantizer;
mod range;
mod sensitivity;
#[cfg(test)]
mod tests;

pub use error::CalibrateError;
pub use held_out::HeldOut;
pub use hidden::Hidden;
pub use layer::{head_input, run_layer};
pub use linear::{Inputs, LoadedLinear, Observer};
pub use outliers::{Outlier, outliers};
pub use quantizer::{Method, Quantized, Quantizer, Text, quantize};
pub use range::{LargeActivation, RangeRepair, repair_range};
pub use sensitivity::{Part, Probe, sensitivities};

/// Runs something on a thread of the pool: kernels share work among the threads of the pool that they are called from.
fn in_pool<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    rayon::scope(|_| run())
}
