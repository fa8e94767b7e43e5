//! Arithmetic on slices. No kernel knows of programs or files.

pub mod convert;
pub mod elementwise;
pub mod gemm;
mod gemv;
pub mod linear;
mod math;
mod pack;
mod parallel;
pub mod rows;
pub mod simd;
pub mod softmax;
