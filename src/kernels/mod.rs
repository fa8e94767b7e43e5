//! Arithmetic on slices. No kernel knows of programs or files.

pub mod convert;
pub mod gather;
pub mod gemm;
pub mod resample;
pub mod softmax;
