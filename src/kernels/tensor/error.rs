//! What can be wrong with a tensor on its own.

use super::DType;

/// A tensor's type, shape and bytes do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum TensorError {
    /// Elements of one type were asked of a tensor of another.
    #[error("tensor holds {found}, not {wanted}")]
    WrongType { found: DType, wanted: DType },
    /// The bytes do not make up the shape.
    #[error("{dtype} tensor of shape {shape:?} needs {needed} bytes, has {found}")]
    WrongLength { dtype: DType, shape: Vec<usize>, needed: usize, found: usize },
    /// The shape's element or byte count does not fit the address space.
    #[error("{dtype} tensor of shape {shape:?} is too large to address")]
    TooLarge { dtype: DType, shape: Vec<usize> },
    /// The bytes do not start where elements of this type may start.
    #[error("bytes are not aligned for {dtype}")]
    Misaligned { dtype: DType },
}
