//! Compressed weights: decoded by element range where they are used, never expanded as a whole.

use std::ops::Range;

use anemeter_kernels::tensor::{DType, TensorView};
use anemeter_kernels::weight_gemv::{WeightRows, WeightStorage};

/// A weight that is kept compressed.
pub trait Decode: Send + Sync {
    /// The data type it decodes to.
    fn dtype(&self) -> DType;

    /// The shape it decodes to.
    fn shape(&self) -> &[usize];

    /// Writes the elements of a row-major range, already rounded to `dtype`, as f32.
    fn decode(&self, range: Range<usize>, out: &mut [f32]);

    /// Bytes it occupies.
    fn stored_bytes(&self) -> usize;

    /// The weight as rows of so many elements that can be multiplied as they are stored, if they can.
    fn rows(&self, columns: usize) -> Option<WeightRows<'_>> {
        let _ = columns;
        None
    }
}

impl std::fmt::Debug for dyn Decode + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "compressed {} {:?}", self.dtype(), self.shape())
    }
}

/// A weight as an operation receives it: plain or compressed.
#[derive(Debug, Clone, Copy)]
pub enum Weight<'a> {
    /// Plain elements.
    Dense(TensorView<'a>),
    /// Compressed elements.
    Packed(&'a dyn Decode),
}

impl<'a> Weight<'a> {
    /// Element type after decoding.
    pub fn dtype(&self) -> DType {
        match self {
            Weight::Dense(view) => view.dtype(),
            Weight::Packed(packed) => packed.dtype(),
        }
    }

    /// The shape that decoding gives.
    pub fn shape(&self) -> &'a [usize] {
        match self {
            Weight::Dense(view) => view.shape(),
            Weight::Packed(packed) => packed.shape(),
        }
    }

    /// The weight as rows of so many elements that can be multiplied as they are stored, if they can.
    pub fn rows(&self, columns: usize) -> Option<WeightRows<'a>> {
        match self {
            Weight::Packed(packed) => packed.rows(columns),
            Weight::Dense(view) => {
                let storage = WeightStorage::F16(view.slice().ok()?);
                Some(WeightRows { columns, storage }).filter(WeightRows::is_regular)
            }
        }
    }

    /// Writes the elements of a row-major range as f32. Integer weights are converted.
    pub fn read(&self, range: Range<usize>, out: &mut [f32]) {
        match self {
            Weight::Packed(packed) => packed.decode(range, out),
            Weight::Dense(view) => anemeter_kernels::convert::to_f32(view, range, out),
        }
    }
}
