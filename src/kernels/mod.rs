//! Arithmetic on slices. No kernel knows of programs or files.

pub mod attention;
pub mod block_scale;
pub mod cluster;
mod code_rows;
pub mod column_attention;
pub mod conv;
pub mod convert;
pub mod copy;
pub mod dequantize;
pub mod elementwise;
mod fixed_point;
pub mod floats;
pub mod gather;
pub mod gemm;
mod gemv;
pub mod int_gemm;
mod math;
pub mod norm;
mod pack;
pub mod packed;
pub(crate) mod parallel;
pub mod pool;
pub mod probe;
pub mod quantize;
pub mod recurrent;
pub mod reduce;
pub mod resample;
pub mod rms;
pub mod rotate;
mod row_products;
pub mod rows;
mod shared_lines;
pub mod simd;
pub mod softmax;
pub mod streamed;
mod tiles;
pub mod token_attention;
pub mod vector_cluster;
pub mod window;

/// Gives back the larger buffers that this thread keeps for products of many columns.
pub(crate) fn release_buffers() {
    tiles::release();
}
