//! Element conversion between what tensors store and what kernels compute in.

use std::ops::Range;

use bytemuck::Pod;
use half::{bf16, f16};
use smallvec::SmallVec;

use super::simd::{Isa, LANES, Load, Op, Simd, Store, scalar};
use crate::tensor::{DType, Tensor, TensorError, TensorView, packed};

/// Writes the elements of a row-major range as f32. Booleans become 0 and 1; strings zero.
pub fn to_f32(view: &TensorView<'_>, range: Range<usize>, out: &mut [f32]) {
    let out = &mut out[..range.len()];
    let bytes = view.bytes();
    match view.dtype() {
        DType::F32 => vectors::<f32>(bytes, range, out),
        DType::F16 => vectors::<f16>(bytes, range, out),
        DType::I8 => vectors::<i8>(bytes, range, out),
        DType::U8 => vectors::<u8>(bytes, range, out),
        DType::BF16 => each(bytes, range, out, |x: u16| bf16::from_bits(x).to_f32()),
        DType::F64 => each(bytes, range, out, |x: f64| x as f32),
        DType::I32 => each(bytes, range, out, |x: i32| x as f32),
        DType::I16 => each(bytes, range, out, |x: i16| f32::from(x)),
        DType::U16 => each(bytes, range, out, |x: u16| f32::from(x)),
        DType::U32 => each(bytes, range, out, |x: u32| x as f32),
        DType::I64 => each(bytes, range, out, |x: i64| x as f32),
        DType::U64 => each(bytes, range, out, |x: u64| x as f32),
        DType::Bool => each(bytes, range, out, |x: u8| if x == 0 { 0.0 } else { 1.0 }),
        DType::F8E4M3FN | DType::F8E5M2 | DType::String => out.fill(0.0),
        dtype @ (DType::I4 | DType::U1 | DType::U2 | DType::U3 | DType::U4 | DType::U6) => {
            for (out, i) in out.iter_mut().zip(range) {
                *out = packed::get_int(bytes, i, dtype) as f32;
            }
        }
    }
}

fn each<T: Pod>(bytes: &[u8], range: Range<usize>, out: &mut [f32], f: impl Fn(T) -> f32) {
    let size = size_of::<T>();
    let chunks = bytes[range.start * size..range.end * size].chunks_exact(size);
    for (out, chunk) in out.iter_mut().zip(chunks) {
        *out = f(bytemuck::pod_read_unaligned(chunk));
    }
}

fn vectors<T: Load>(bytes: &[u8], range: Range<usize>, out: &mut [f32]) {
    match bytemuck::try_cast_slice::<u8, T>(bytes) {
        Ok(values) => convert(&values[range], out),
        // Bytes of a mapped file need not be aligned to their elements.
        Err(_) => each(bytes, range, out, T::widen),
    }
}

/// Widens or rounds each element. Both slices must be of the same length.
pub fn convert<T: Load, U: Store>(from: &[T], to: &mut [U]) {
    Isa::best().run(Convert { from, to });
}

struct Convert<'a, T, U> {
    from: &'a [T],
    to: &'a mut [U],
}

impl<T: Load, U: Store> Op for Convert<'_, T, U> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Convert { from, to } = self;
        assert_eq!(from.len(), to.len(), "as many elements as there is room for");
        let (from, from_rest) = from.as_chunks::<LANES>();
        let (to, to_rest) = to.as_chunks_mut::<LANES>();
        for (from, to) in from.iter().zip(to) {
            U::store(s, T::load(s, from), to);
        }
        U::store_some(s, T::load_some(s, from_rest), to_rest);
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
#[inline]
pub fn round_f16(value: f32) -> f32 {
    scalar::round_f16(value)
}

/// A tensor of the given type from f32 elements: floats are rounded to nearest, integers truncated and
/// saturated.
pub fn from_f32(dtype: DType, shape: &[usize], values: &[f32]) -> Result<Tensor, TensorError> {
    match dtype {
        DType::F32 => Tensor::from_slice(shape, values),
        DType::F16 => {
            let mut halves = vec![f16::ZERO; values.len()];
            convert(values, &mut halves);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_and_every_length_is_converted() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for isa in Isa::all() {
            let (mut wide, mut back) = (vec![0.0; all.len()], vec![f16::ZERO; all.len()]);
            isa.run(Convert { from: &all[..], to: &mut wide[..] });
            isa.run(Convert { from: &wide[..], to: &mut back[..] });
            for (x, (wide, back)) in all.iter().zip(wide.iter().zip(&back)) {
                assert!(
                    x.is_nan() && back.is_nan() || x.to_bits() == back.to_bits(),
                    "{isa:?}: {x} as {wide}"
                );
                assert!(x.is_nan() || wide.to_bits() == x.to_f32_const().to_bits(), "{isa:?}: {x} as {wide}");
            }
            for len in [0, 1, 7, 8, 9, 31] {
                let mut out = vec![7.0; len];
                isa.run(Convert { from: &all[0x3bff..][..len], to: &mut out[..] });
                assert!(out.iter().zip(&all[0x3bff..]).all(|(&out, x)| out == x.to_f32()));
            }
        }
    }

    #[test]
    fn bytes_and_unaligned_halves_are_read_by_range() {
        let bytes = [0x80, 0xff, 0, 1, 0x7f, 200, 3, 9, 10, 11, 12];
        let view = |dtype| TensorView::new(dtype, &[11], &bytes).unwrap();
        let mut out = [0.0; 9];
        to_f32(&view(DType::I8), 0..9, &mut out);
        assert_eq!(out, [-128.0, -1.0, 0.0, 1.0, 127.0, -56.0, 3.0, 9.0, 10.0]);
        to_f32(&view(DType::U8), 2..11, &mut out);
        assert_eq!(out, [0.0, 1.0, 127.0, 200.0, 3.0, 9.0, 10.0, 11.0, 12.0]);
        let halves: Vec<u8> =
            [1.0, -2.5, 65504.0].iter().flat_map(|&x| f16::from_f32(x).to_ne_bytes()).collect();
        for offset in 0..2 {
            let shifted = [vec![0; offset], halves.clone()].concat();
            let view = TensorView::new(DType::F16, &[3], &shifted[offset..]).unwrap();
            to_f32(&view, 1..3, &mut out);
            assert_eq!(out[..2], [-2.5, 65504.0]);
        }
    }

    #[test]
    fn values_become_tensors_of_any_type() {
        let halves = from_f32(DType::F16, &[2], &[0.1, 70000.0]).unwrap();
        assert_eq!(halves.view().slice::<f16>().unwrap(), [f16::from_f32(0.1), f16::INFINITY]);
        let bytes = from_f32(DType::U8, &[3], &[-1.0, 3.9, 300.0]).unwrap();
        assert_eq!(bytes.view().slice::<u8>().unwrap(), [0, 3, 255]);
        assert!(from_f32(DType::String, &[1], &[0.0]).is_err());
    }
}
