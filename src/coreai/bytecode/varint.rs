//! Integers of variable length (PrefixVarInt): the trailing zeros of the first byte are the number of bytes that follow.

/// The most bytes of one.
const LONGEST: usize = 9;

/// Appends an integer.
pub(super) fn push(out: &mut Vec<u8>, value: u64) {
    let len = len(value);
    if len == LONGEST {
        out.push(0);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        let bits = ((value << 1) | 1) << (len - 1);
        out.extend_from_slice(&bits.to_le_bytes()[..len]);
    }
}

/// Appends a signed integer, with its sign in the lowest bit (zig-zag).
pub(super) fn push_signed(out: &mut Vec<u8>, value: i64) {
    push(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends a count and as many integers.
pub(super) fn push_list(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = u64>) {
    push(out, values.len() as u64);
    values.for_each(|value| push(out, value));
}

/// The bytes that an integer takes.
pub(super) fn len(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    match bits.div_ceil(7).max(1) as usize {
        len @ 1..=8 => len,
        _ => LONGEST,
    }
}

/// An integer at the start of some bytes and how many it takes; otherwise how many it would take.
pub(super) fn read(bytes: &[u8]) -> Result<(u64, usize), usize> {
    let first = *bytes.first().ok_or(1usize)?;
    let len = first.trailing_zeros() as usize + 1;
    let Some(taken) = bytes.get(..len) else { return Err(len) };
    let mut word = [0; 8];
    if len == LONGEST {
        word.copy_from_slice(&taken[1..]);
        return Ok((u64::from_le_bytes(word), len));
    }
    word[..len].copy_from_slice(taken);
    // Eight bytes have 56 bits: the shift is never as wide as the word.
    Ok((u64::from_le_bytes(word) >> len, len))
}

/// The signed integer behind an unsigned one.
pub(super) fn signed(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, value);
        out
    }

    #[test]
    fn they_are_what_mlir_writes() {
        assert_eq!(bytes(0), [0x01]);
        assert_eq!(bytes(6), [0x0d]);
        assert_eq!(bytes(127), [0xff]);
        assert_eq!(bytes(128), [0x02, 0x02]);
        assert_eq!(bytes(1027), [0x0e, 0x10]);
        assert_eq!(bytes((1 << 56) - 1), [0x80, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(bytes(1 << 56), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let mut dynamic = Vec::new();
        push_signed(&mut dynamic, i64::MIN);
        assert_eq!(dynamic, [0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!((read(&[]), read(&[0x02]), read(&[0; 8])), (Err(1), Err(2), Err(9)));
    }

    proptest! {
        #[test]
        fn every_integer_comes_back(value: u64, shift in 0u32..64, signed_value: i64, rest: Vec<u8>) {
            let value = value >> shift;
            let mut out = bytes(value);
            prop_assert_eq!(out.len(), len(value));
            out.extend(&rest);
            prop_assert_eq!(read(&out), Ok((value, len(value))));
            let signed_value = signed_value >> shift;
            let mut out = Vec::new();
            push_signed(&mut out, signed_value);
            prop_assert_eq!(read(&out).map(|(value, _)| signed(value)), Ok(signed_value));
        }

        #[test]
        fn any_bytes_are_an_integer_or_too_short(bytes: Vec<u8>) {
            match read(&bytes) {
                Ok((_, len)) => prop_assert!(len <= bytes.len()),
                Err(len) => prop_assert!(len > bytes.len()),
            }
        }
    }
}
