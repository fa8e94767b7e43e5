//! What can be wrong with a tensor on its own.

use super::DType;

/// A tensor's type, shape and bytes do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// Elements of one type were asked of a tensor of another.
    #[error("tensor holds {found}, not {wanted}")]
    WrongType {
        /// What the tensor holds.
        found: DType,
        /// What was asked for.
        wanted: DType,
    },
    /// The bytes do not make up the shape.
    #[error("{dtype} tensor of shape {shape:?} needs {needed} bytes, has {found}")]
    WrongLength {
        /// Element type.
        dtype: DType,
        /// Declared shape.
        shape: Vec<usize>,
        /// Bytes the shape implies.
        needed: usize,
        /// Bytes present.
        found: usize,
    },
    /// The shape's element or byte count does not fit the address space.
    #[error("{dtype} tensor of shape {shape:?} is too large to address")]
    TooLarge {
        /// Element type.
        dtype: DType,
        /// Declared shape.
        shape: Vec<usize>,
    },
    /// The bytes do not start where elements of this type may start.
    #[error("bytes are not aligned for {dtype}")]
    Misaligned {
        /// Element type.
        dtype: DType,
    },
}
