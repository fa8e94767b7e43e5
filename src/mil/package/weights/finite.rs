//! Whether every number of a stream of bytes is finite.

use anemeter_kernels::tensor::DType;

/// Looks at the elements of a weight as they pass, however they are cut.
pub(super) struct FiniteCheck {
    /// Bytes of an element, and the bits of its last two that are all set in what is not finite; none for integers.
    float: Option<(usize, u16)>,
    /// Bytes that have passed.
    passed: u64,
    /// The last byte that has passed.
    last: u8,
    found: Option<u64>,
}

impl FiniteCheck {
    pub(super) fn new(dtype: DType) -> FiniteCheck {
        let float = match dtype {
            DType::F16 => Some((2, 0x7c00)),
            DType::BF16 => Some((2, 0x7f80)),
            DType::F32 => Some((4, 0x7f80)),
            DType::F64 => Some((8, 0x7ff0)),
            _ => None,
        };
        FiniteCheck { float, passed: 0, last: 0, found: None }
    }

    /// The next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let (Some((size, exponent)), [first, ..]) = (self.float, bytes) else { return };
        let is_bad = |low: u8, high: u8| u16::from_le_bytes([low, high]) & exponent == exponent;
        let before = (self.passed % size as u64) as usize;
        let start = self.passed;
        self.passed += bytes.len() as u64;
        // Only the last byte of an element is in this piece.
        if before == size - 1 && is_bad(self.last, *first) {
            self.note((start + 1) / size as u64 - 1);
        }
        let skip = (size - before) % size;
        let whole = bytes.get(skip..).unwrap_or_default();
        let mut elements = whole.chunks_exact(size);
        // All at once is fast, one after the other tells which.
        let any =
            elements.clone().fold(false, |any, element| any | is_bad(element[size - 2], element[size - 1]));
        if any {
            let at = elements.position(|element| is_bad(element[size - 2], element[size - 1]));
            self.note((start + skip as u64) / size as u64 + at.unwrap_or(0) as u64);
        }
        // The end of an element that began in an earlier piece.
        if before > 0 && before < size - 1 && bytes.len() >= skip {
            let low = if skip >= 2 { bytes[skip - 2] } else { self.last };
            if is_bad(low, bytes[skip - 1]) {
                self.note(start / size as u64);
            }
        }
        self.last = bytes[bytes.len() - 1];
    }

    fn note(&mut self, element: u64) {
        self.found.get_or_insert(element);
    }

    /// An element that is infinite or no number.
    pub(super) fn found(&self) -> Option<u64> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_however_they_are_cut() {
        let halves: Vec<u8> = [0x3c00u16, 0x7bff, 0xfc00, 1].iter().flat_map(|x| x.to_le_bytes()).collect();
        let singles: Vec<u8> =
            [1.0f32, f32::MAX, f32::NAN, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let doubles: Vec<u8> =
            [1.0f64, f64::MIN, f64::INFINITY, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        for (dtype, bytes) in [(DType::F16, &halves), (DType::F32, &singles), (DType::F64, &doubles)] {
            for a in 0..=bytes.len() {
                for b in a..=bytes.len() {
                    let mut check = FiniteCheck::new(dtype);
                    for piece in [&bytes[..a], &bytes[a..b], &bytes[b..]] {
                        check.update(piece);
                    }
                    assert_eq!(check.found(), Some(2), "{dtype} cut at {a} and {b}");
                    let mut good = FiniteCheck::new(dtype);
                    let half = bytes.len() / 2;
                    for piece in
                        [&bytes[..a.min(half)], &bytes[a.min(half)..b.min(half)], &bytes[b.min(half)..half]]
                    {
                        good.update(piece);
                    }
                    assert_eq!(good.found(), None, "{dtype} cut at {a} and {b}");
                }
            }
        }
        let mut integers = FiniteCheck::new(DType::I8);
        integers.update(&[0xff; 9]);
        assert_eq!(integers.found(), None);
    }
}
