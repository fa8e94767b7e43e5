//! Arithmetic on slices. No kernel knows of programs or files.

pub mod attention;
pub mod conv;
pub mod convert;
pub mod floats;
pub mod copy;
pub mod gather;
pub mod dequantize;
pub mod gemm;
mod gemv;
mod pack;
mod parallel;
pub mod simd;
pub mod norm;
pub mod reduce;
pub mod int_gemm;
pub mod pool;
pub mod softmax;
pub mod streamed;
pub mod window;
