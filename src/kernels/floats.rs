//! Tensors as f32: read in place or converted, written rounded.

use half::f16;

use super::convert::{convert, to_f32};
use crate::tensor::{DType, TensorError, TensorMut, TensorView};

/// Elements of scratch memory that [`read`] needs: none if the tensor is f32 already.
pub fn scratch_len(view: &TensorView<'_>) -> usize {
    if view.dtype() == DType::F32 { 0 } else { view.len() }
}

/// All elements of a tensor, in place or in scratch memory.
pub fn read<'a>(view: &TensorView<'a>, scratch: &'a mut [f32]) -> &'a [f32] {
    match view.slice() {
        Ok(values) => values,
        Err(_) => {
            let values = &mut scratch[..view.len()];
            to_f32(view, 0..values.len(), values);
            values
        }
    }
}

/// The elements of an output that is computed in f32.
pub enum Sink<'a> {
    /// Rounded to nearest.
    F16(&'a mut [f16]),
    /// Kept as they are.
    F32(&'a mut [f32]),
    /// Truncated towards zero and saturated.
    I32(&'a mut [i32]),
}

impl<'a> Sink<'a> {
    /// The elements of a tensor of one of these types.
    pub fn new(out: TensorMut<'a>) -> Result<Sink<'a>, TensorError> {
        match out.dtype() {
            DType::F16 => out.slice().map(Sink::F16),
            DType::I32 => out.slice().map(Sink::I32),
            _ => out.slice().map(Sink::F32),
        }
    }

    /// Writes consecutive elements from index `at` on.
    pub fn write(&mut self, at: usize, values: &[f32]) {
        let range = at..at + values.len();
        match self {
            Sink::F16(out) => convert(values, &mut out[range]),
            Sink::F32(out) => out[range].copy_from_slice(values),
            Sink::I32(out) => {
                for (out, &value) in out[range].iter_mut().zip(values) {
                    *out = value as i32;
                }
            }
        }
    }
}
