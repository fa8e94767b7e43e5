//! Dequantization: unpacking bit fields, looking up LUTs, shifting and scaling.
//!
//! Streams are row-major and little endian: element `i` of `b` bits starts at bit `i * b`.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::tensor::{DType, packed};

/// Elements handled at a time where an intermediate form is needed.
pub const CHUNK: usize = 512;

/// Writes the raw fields of `bits` (1, 2, 3, 4, 6 or 8) from element `start` on.
pub fn unpack(bytes: &[u8], bits: u32, start: usize, out: &mut [u8]) {
    match bits {
        8 => out.copy_from_slice(&bytes[start..start + out.len()]),
        6 => unpack_groups::<6, 4, 3>(bytes, start, out),
        4 => unpack_groups::<4, 2, 1>(bytes, start, out),
        3 => unpack_groups::<3, 8, 3>(bytes, start, out),
        2 => unpack_groups::<2, 4, 1>(bytes, start, out),
        1 => unpack_groups::<1, 8, 1>(bytes, start, out),
        _ => {
            for (i, out) in out.iter_mut().enumerate() {
                *out = packed::get(bytes, start + i, bits);
            }
        }
    }
}

/// `COUNT` fields of `BITS` fill exactly `BYTES` bytes.
fn unpack_groups<const BITS: u32, const COUNT: usize, const BYTES: usize>(
    bytes: &[u8],
    start: usize,
    out: &mut [u8],
) {
    // Whole groups begin on a byte. What lies before the first and after the last is read field by field.
    let before = (start.next_multiple_of(COUNT) - start).min(out.len());
    let (head, rest) = out.split_at_mut(before);
    for (i, out) in head.iter_mut().enumerate() {
        *out = packed::get(bytes, start + i, BITS);
    }
    let first = start + before;
    let (groups, tail) = rest.as_chunks_mut::<COUNT>();
    let after = first + groups.len() * COUNT;
    let (chunks, _) = bytes[(first / COUNT * BYTES).min(bytes.len())..].as_chunks::<BYTES>();
    for (group, chunk) in groups.iter_mut().zip(chunks) {
        let mut word = [0; 4];
        word[..BYTES].copy_from_slice(chunk);
        let word = u32::from_le_bytes(word);
        *group = std::array::from_fn(|i| ((word >> (i as u32 * BITS)) & ((1 << BITS) - 1)) as u8);
    }
    for (i, out) in tail.iter_mut().enumerate() {
        *out = packed::get(bytes, after + i, BITS);
    }
}

/// Writes integers of at most 8 bits from element `start` on as numbers.
pub fn read_ints(bytes: &[u8], dtype: DType, start: usize, out: &mut [f32]) {
    // Flipping the sign bit turns two's complement into an unsigned number that is too large by its weight.
    let sign = match dtype {
        DType::I8 => 0x80u8,
        DType::I4 => 0x08,
        _ => 0,
    };
    let bias = f32::from(sign);
    let widen = |raw: &[u8], out: &mut [f32]| {
        for (out, &raw) in out.iter_mut().zip(raw) {
            *out = f32::from(raw ^ sign) - bias;
        }
    };
    if dtype.bits() == 8 {
        return widen(&bytes[start..start + out.len()], out);
    }
    let mut raw = [0; CHUNK];
    for (i, out) in out.chunks_mut(CHUNK).enumerate() {
        let raw = &mut raw[..out.len()];
        unpack(bytes, dtype.bits(), start + i * CHUNK, raw);
        widen(raw, out);
    }
}

/// `values[i] = scale * (values[i] - offset)`.
pub fn shift_scale(values: &mut [f32], offset: f32, scale: f32) {
    for value in values {
        *value = scale * (*value - offset);
    }
}

/// Rounds every value to the nearest fp16 number.
pub fn round_to_f16(values: &mut [f32]) {
    let mut halves = [f16::ZERO; 256];
    for values in values.chunks_mut(256) {
        let halves = &mut halves[..values.len()];
        halves.convert_from_f32_slice(values);
        halves.convert_to_f32_slice(values);
    }
}

/// A lookup table of `2^bits` entries of `vector` numbers.
#[derive(Debug, Clone, Copy)]
pub struct Lut<'a> {
    values: &'a [f32],
    vector: usize,
}

impl<'a> Lut<'a> {
    /// A table over `values`, entry by entry.
    pub fn new(values: &'a [f32], vector: usize) -> Lut<'a> {
        Lut { values, vector }
    }

    /// Number `component` of the entry each index names.
    pub fn look_up(&self, indices: &[u8], component: usize, out: &mut [f32]) {
        match (self.vector, self.values.len()) {
            (1, 2) => self.look_up_scalars::<2>(indices, out),
            (1, 4) => self.look_up_scalars::<4>(indices, out),
            (1, 8) => self.look_up_scalars::<8>(indices, out),
            (1, 16) => self.look_up_scalars::<16>(indices, out),
            (1, 64) => self.look_up_scalars::<64>(indices, out),
            (1, 256) => self.look_up_scalars::<256>(indices, out),
            _ => {
                for (out, &index) in out.iter_mut().zip(indices) {
                    *out = self.values[usize::from(index) * self.vector + component];
                }
            }
        }
    }

    /// All numbers of the entry an index names.
    pub fn entry(&self, index: u8) -> &'a [f32] {
        &self.values[usize::from(index) * self.vector..][..self.vector]
    }

    /// A power of two as the length lets the index be bounded by a mask instead of a check.
    fn look_up_scalars<const N: usize>(&self, indices: &[u8], out: &mut [f32]) {
        let Ok(table) = <&[f32; N]>::try_from(self.values) else { return };
        for (out, &index) in out.iter_mut().zip(indices) {
            *out = table[usize::from(index) & (N - 1)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_unpacks_from_any_element() {
        let values: Vec<u8> = (0..100u32).map(|i| (i * 37 % 256) as u8).collect();
        for bits in [1, 2, 3, 4, 6, 8] {
            let bytes = packed::pack(values.iter().copied(), bits);
            for start in 0..20 {
                for len in [0, 1, 7, 80] {
                    let mut out = vec![0; len];
                    unpack(&bytes, bits, start, &mut out);
                    let expected: Vec<u8> =
                        (start..start + len).map(|i| packed::get(&bytes, i, bits)).collect();
                    assert_eq!(out, expected, "{bits} bits from {start}");
                }
            }
        }
    }

    #[test]
    fn integers_keep_their_sign() {
        let mut out = [0.0; 4];
        read_ints(&[0x78, 0xf1], DType::I4, 0, &mut out);
        assert_eq!(out, [-8.0, 7.0, 1.0, -1.0]);
        read_ints(&[0x80, 0x7f, 0xff, 0x00], DType::I8, 0, &mut out);
        assert_eq!(out, [-128.0, 127.0, -1.0, 0.0]);
        read_ints(&[0x78, 0xf1], DType::U4, 0, &mut out);
        assert_eq!(out, [8.0, 7.0, 1.0, 15.0]);
    }

    #[test]
    fn palettes_give_scalars_and_components() {
        let values = [1.0, 2.0, 3.0, 4.0];
        let mut out = [0.0; 3];
        Lut::new(&values, 1).look_up(&[3, 0, 2], 0, &mut out);
        assert_eq!(out, [4.0, 1.0, 3.0]);
        Lut::new(&values, 2).look_up(&[1, 0, 1], 1, &mut out);
        assert_eq!(out, [4.0, 2.0, 4.0]);
        assert_eq!(Lut::new(&values, 2).entry(1), [3.0, 4.0]);
    }
}
