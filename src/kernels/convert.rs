//! Element conversion between what tensors store and what kernels compute in.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use smallvec::SmallVec;

use crate::tensor::{DType, Tensor, TensorError, TensorView, packed};

/// Writes the elements of a row-major range as f32. Booleans become 0 and 1; strings zero.
pub fn to_f32(view: &TensorView<'_>, range: Range<usize>, out: &mut [f32]) {
    let bytes = view.bytes();
    fn each<T: bytemuck::AnyBitPattern>(bytes: &[u8], range: Range<usize>, out: &mut [f32], f: fn(T) -> f32) {
        let size = size_of::<T>();
        let chunks = bytes[range.start * size..range.end * size].chunks_exact(size);
        for (out, chunk) in out.iter_mut().zip(chunks) {
            *out = f(bytemuck::pod_read_unaligned(chunk));
        }
    }
    match view.dtype() {
        DType::F32 => each(bytes, range, out, |x: f32| x),
        DType::F16 => match view.slice::<f16>() {
            Ok(values) => values[range.clone()].convert_to_f32_slice(&mut out[..range.len()]),
            Err(_) => each(bytes, range, out, |x: u16| f16::from_bits(x).to_f32()),
        },
        DType::BF16 => each(bytes, range, out, |x: u16| bf16::from_bits(x).to_f32()),
        DType::F64 => each(bytes, range, out, |x: f64| x as f32),
        DType::I32 => each(bytes, range, out, |x: i32| x as f32),
        DType::I16 => each(bytes, range, out, |x: i16| f32::from(x)),
        DType::U16 => each(bytes, range, out, |x: u16| f32::from(x)),
        DType::U32 => each(bytes, range, out, |x: u32| x as f32),
        DType::I64 => each(bytes, range, out, |x: i64| x as f32),
        DType::U64 => each(bytes, range, out, |x: u64| x as f32),
        DType::Bool => each(bytes, range, out, |x: u8| if x == 0 { 0.0 } else { 1.0 }),
        DType::U8 => each(bytes, range, out, |x: u8| f32::from(x)),
        DType::F8E4M3FN | DType::F8E5M2 | DType::String => out[..range.len()].fill(0.0),
        dtype @ (DType::I4 | DType::I8 | DType::U1 | DType::U2 | DType::U3 | DType::U4 | DType::U6) => {
            for (out, i) in out.iter_mut().zip(range) {
                *out = packed::get_int(bytes, i, dtype) as f32;
            }
        }
    }
}

/// All elements of an integer tensor, widened.
pub fn to_ints(view: &TensorView<'_>) -> Result<SmallVec<[i64; 8]>, TensorError> {
    Ok(match view.dtype() {
        DType::I32 => view.slice::<i32>()?.iter().map(|&x| i64::from(x)).collect(),
        DType::I16 => view.slice::<i16>()?.iter().map(|&x| i64::from(x)).collect(),
        DType::U16 => view.slice::<u16>()?.iter().map(|&x| i64::from(x)).collect(),
        DType::U32 => view.slice::<u32>()?.iter().map(|&x| i64::from(x)).collect(),
        DType::I64 => view.slice::<i64>()?.iter().copied().collect(),
        DType::Bool => view.bytes().iter().map(|&x| i64::from(x != 0)).collect(),
        dtype if dtype.is_int() && dtype.bits() <= 8 => {
            (0..view.len()).map(|i| i64::from(packed::get_int(view.bytes(), i, dtype))).collect()
        }
        found => return Err(TensorError::WrongType { found, wanted: DType::I32 }),
    })
}

/// Rounds to the nearest fp16 value.
pub fn round_f16(value: f32) -> f32 {
    f16::from_f32(value).to_f32()
}

/// A tensor of the given type from f32 elements: floats are rounded to nearest, integers truncated and
/// saturated.
pub fn from_f32(dtype: DType, shape: &[usize], values: &[f32]) -> Result<Tensor, TensorError> {
    match dtype {
        DType::F32 => Tensor::from_slice(shape, values),
        DType::F16 => {
            let mut halves = vec![f16::ZERO; values.len()];
            halves.convert_from_f32_slice(values);
            Tensor::from_slice(shape, &halves)
        }
        DType::I32 => Tensor::from_slice(shape, &cast_all(values, |x| x as i32)),
        DType::I16 => Tensor::from_slice(shape, &cast_all(values, |x| x as i16)),
        DType::U16 => Tensor::from_slice(shape, &cast_all(values, |x| x as u16)),
        DType::I8 => Tensor::from_slice(shape, &cast_all(values, |x| x as i8)),
        DType::U8 => Tensor::from_slice(shape, &cast_all(values, |x| x as u8)),
        dtype if dtype.is_sub_byte() => {
            let raw = values.iter().map(|&x| (x as i32 & 0xff) as u8);
            Tensor::new(dtype, shape.into(), packed::pack(raw, dtype.bits()).into())
        }
        found => Err(TensorError::WrongType { found, wanted: DType::F32 }),
    }
}

fn cast_all<T>(values: &[f32], cast: fn(f32) -> T) -> Vec<T> {
    values.iter().map(|&x| cast(x)).collect()
}
