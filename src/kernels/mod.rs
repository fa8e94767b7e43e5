//! Arithmetic on slices. No kernel knows of programs or files.

pub mod convert;
pub mod gemm;
pub mod norm;
pub mod reduce;
pub mod softmax;
