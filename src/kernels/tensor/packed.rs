//! Sub-byte element streams: row-major, least significant bit first, elements may straddle bytes.

use super::DType;

/// Packs the low `bits` (1..=8) of each value; unused high bits of the last byte are zero.
pub fn pack(values: impl IntoIterator<Item = u8>, bits: u32) -> Vec<u8> {
    let mask = low_mask(bits);
    let (mut out, mut held, mut filled) = (Vec::new(), 0u32, 0);
    for value in values {
        held |= (u32::from(value) & mask) << filled;
        filled += bits;
        while filled >= 8 {
            out.push((held & 0xff) as u8);
            held >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        out.push((held & 0xff) as u8);
    }
    out
}

/// The raw bits of element `index`.
pub fn get(bytes: &[u8], index: usize, bits: u32) -> u8 {
    let bit = index * bits as usize;
    let (byte, shift) = (bit / 8, (bit % 8) as u32);
    // A field of up to 8 bits lies in two bytes at most.
    let pair = u32::from(bytes[byte]) | (u32::from(bytes.get(byte + 1).copied().unwrap_or(0)) << 8);
    ((pair >> shift) & low_mask(bits)) as u8
}

/// Element `index` of a tensor of the given integer type, sign-extended where the type is signed.
pub fn get_int(bytes: &[u8], index: usize, dtype: DType) -> i32 {
    match dtype {
        DType::I8 => i32::from(bytes[index].cast_signed()),
        DType::I4 => (i32::from(get(bytes, index, 4)) ^ 8) - 8,
        _ => i32::from(get(bytes, index, dtype.bits())),
    }
}

fn low_mask(bits: u32) -> u32 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_match_the_format() {
        let int4 = [-8i8, 7, 1, -1, 3].map(i8::cast_unsigned);
        assert_eq!(pack(int4, 4), [0x78, 0xf1, 0x03]);
        assert_eq!(pack(1..=7, 3), [0xd1, 0x58, 0x1f]);
        assert_eq!(pack([1, 2, 63], 6), [0x81, 0xf0, 0x03]);
        assert_eq!(pack([1, 0, 1, 1, 0, 0, 0, 0, 1], 1), [0x0d, 0x01]);
        assert_eq!(
            (0..5).map(|i| get_int(&[0x78, 0xf1, 0x03], i, DType::I4)).collect::<Vec<_>>(),
            [-8, 7, 1, -1, 3]
        );
    }

    proptest::proptest! {
        #[test]
        fn unpacking_undoes_packing(bits in 1u32..=8, values in proptest::collection::vec(0u8.., 0..64)) {
            let packed = pack(values.iter().copied(), bits);
            for (i, &value) in values.iter().enumerate() {
                assert_eq!(u32::from(get(&packed, i, bits)), u32::from(value) & low_mask(bits));
            }
        }
    }
}
