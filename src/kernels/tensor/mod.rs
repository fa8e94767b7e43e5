//! The vocabulary shared by every stage: data types, shapes, bytes and views of them.
//!
//! Nothing here knows of models or files formats; everything else builds on it.

mod dtype;
mod error;
pub mod packed;
pub mod shape;
mod storage;
mod view;

pub use dtype::{DType, Element};
pub use error::TensorError;
pub use shape::Shape;
pub use storage::{AlignedBuf, Bytes};
pub use view::{Tensor, TensorMut, TensorView};
