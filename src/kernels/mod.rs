//! Arithmetic on slices. No kernel knows of programs or files.

pub mod attention;
pub mod conv;
pub mod convert;
pub mod copy;
pub mod dequantize;
pub mod elementwise;
pub mod floats;
pub mod gather;
pub mod gemm;
mod gemv;
pub mod int_gemm;
mod math;
pub mod norm;
mod pack;
pub(crate) mod parallel;
pub mod pool;
pub mod probe;
pub mod recurrent;
pub mod reduce;
pub mod resample;
pub mod rms;
pub mod rows;
pub mod simd;
pub mod softmax;
pub mod streamed;
mod tiles;
pub mod window;
