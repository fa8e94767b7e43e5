//! One tensor of a checkpoint, as it is stored.

use std::ops::Range;

use crate::kernels::convert;
use crate::tensor::{Bytes, DType, Shape, TensorView};

/// A tensor of a checkpoint.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its shape in Hugging Face's layout.
    pub shape: Shape,
    /// How its elements are encoded.
    pub encoding: Encoding,
    /// Its bytes, mapped.
    pub bytes: Bytes,
}

/// How the elements of a stored tensor are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Plain elements.
    Plain(DType),
}

impl Stored {
    /// Writes the elements of a row-major range as f32.
    pub fn read(&self, range: Range<usize>, out: &mut [f32]) {
        match self.encoding {
            Encoding::Plain(dtype) => {
                if let Ok(view) = TensorView::new(dtype, &self.shape, &self.bytes) {
                    convert::to_f32(&view, range, out);
                }
            }
        }
    }
}
