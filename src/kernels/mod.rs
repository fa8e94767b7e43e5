//! Arithmetic on slices. No kernel knows of programs or files.

pub mod convert;
pub mod dequantize;
pub mod gemm;
pub mod recurrent;
pub mod softmax;
