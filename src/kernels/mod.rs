//! Arithmetic on slices. No kernel knows of programs or files.

pub mod convert;
pub mod gemm;
mod gemv;
mod pack;
mod parallel;
pub mod simd;
pub mod norm;
pub mod reduce;
pub mod softmax;
