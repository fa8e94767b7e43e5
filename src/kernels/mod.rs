//! Arithmetic on slices. No kernel knows of programs or files.

pub mod attention;
pub mod chunks;
pub mod conv;
pub mod convert;
pub mod floats;
pub mod gemm;
pub mod int_gemm;
pub mod pool;
pub mod softmax;
pub mod streamed;
pub mod window;
