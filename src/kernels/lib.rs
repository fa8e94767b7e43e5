//! Tensors, and arithmetic on slices. No kernel knows of programs or files.

mod activation_quant;
pub mod argmax;
pub mod attention;
pub mod block_scale;
mod block_shift;
mod blocked_gemm;
mod contention;
pub mod conv;
pub mod convert;
pub mod copy;
pub mod decode_attention;
pub mod dequantize;
pub mod elementwise;
pub mod floats;
pub mod gather;
pub mod gemm;
mod gemv;
#[cfg(test)]
mod gemv_accuracy;
mod gqa_dots;
mod int8_gemv;
pub mod int_gemm;
pub mod kmeans;
pub mod kmeans_1d;
mod math;
pub mod norm;
mod packing;
mod pair_packing;
pub mod palette;
pub mod parallel;
pub mod pool;
pub mod prefill_attention;
pub mod probe;
pub mod quantize;
pub mod quantized_gemm;
mod quantized_gemv;
pub mod recurrent;
pub mod reduce;
pub mod resample;
pub mod rms_norm;
pub mod rope;
mod row_gemv;
pub mod rows;
pub mod simd;
pub mod softmax;
pub mod streamed_gemm;
pub mod tensor;
pub mod weight_gemv;
pub mod window;

/// Gives back the larger buffers that this thread keeps for products of many columns.
pub fn release_buffers() {
    blocked_gemm::release();
}
