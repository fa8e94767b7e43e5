//! A state outside of any session, on its way from one to another.

use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, Tensor, TensorError, TensorView};

/// A state that packages which are parts of one model take turns with: it is exchanged for the one that the session of
/// the next package has ([`Session::exchange_state`](crate::Session::exchange_state)).
pub struct HeldState {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) buffer: AlignedBuf,
}

impl HeldState {
    /// Zeros of the type and shape of a state.
    pub fn like(state: &TensorView<'_>) -> HeldState {
        HeldState {
            dtype: state.dtype(),
            shape: state.shape().into(),
            buffer: AlignedBuf::zeroed(state.bytes().len()),
        }
    }

    /// The content, which is then no longer held.
    pub(crate) fn take(&mut self) -> Result<Tensor, TensorError> {
        Tensor::new(self.dtype, self.shape.clone(), std::mem::take(&mut self.buffer).into())
    }
}
