//! Whether every number of a stream of bytes is finite.

use anemeter_kernels::tensor::DType;

/// Elements that are looked at together: the loop over them has no way out, so that it is compiled to vector
/// instructions, and bytes are still in the first cache when one of them is looked for.
const BLOCK: usize = 512;

/// Looks at the elements of a weight as they pass, however they are cut.
pub(super) struct FiniteCheck {
    dtype: DType,
    /// Elements that have passed as a whole.
    passed: u64,
    /// The bytes of an element that was cut, as far as they have passed.
    cut: [u8; 8],
    cut_len: usize,
    found: Option<u64>,
}

impl FiniteCheck {
    pub(super) fn new(dtype: DType) -> FiniteCheck {
        FiniteCheck { dtype, passed: 0, cut: [0; 8], cut_len: 0, found: None }
    }

    /// The next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        // What is not finite has all bits of the exponent set.
        match self.dtype {
            DType::F16 => self.scan(bytes, |element| u16::from_le_bytes(element) & 0x7c00 == 0x7c00),
            DType::BF16 => self.scan(bytes, |element| u16::from_le_bytes(element) & 0x7f80 == 0x7f80),
            DType::F32 => {
                self.scan(bytes, |element| u32::from_le_bytes(element) & 0x7f80_0000 == 0x7f80_0000);
            }
            DType::F64 => self.scan(bytes, |element| {
                u64::from_le_bytes(element) & 0x7ff0_0000_0000_0000 == 0x7ff0_0000_0000_0000
            }),
            // Integers.
            _ => {}
        }
    }

    fn scan<const SIZE: usize>(&mut self, bytes: &[u8], is_bad: impl Fn([u8; SIZE]) -> bool) {
        let mut bytes = bytes;
        if self.cut_len > 0 {
            let (rest, after) = bytes.split_at(bytes.len().min(SIZE - self.cut_len));
            self.cut[self.cut_len..][..rest.len()].copy_from_slice(rest);
            self.cut_len += rest.len();
            let (Some(&element), true) = (self.cut.first_chunk(), self.cut_len == SIZE) else { return };
            self.look_at(&[element], &is_bad);
            self.cut_len = 0;
            bytes = after;
        }
        let (elements, cut) = bytes.as_chunks();
        for block in elements.chunks(BLOCK) {
            self.look_at(block, &is_bad);
        }
        self.cut[..cut.len()].copy_from_slice(cut);
        self.cut_len = cut.len();
    }

    fn look_at<const SIZE: usize>(&mut self, block: &[[u8; SIZE]], is_bad: &impl Fn([u8; SIZE]) -> bool) {
        if block.iter().fold(false, |any, &element| any | is_bad(element)) && self.found.is_none() {
            let at = block.iter().position(|&element| is_bad(element));
            self.found = at.map(|at| self.passed + at as u64);
        }
        self.passed += block.len() as u64;
    }

    /// The first element that is infinite or no number.
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

    #[test]
    fn the_first_of_several_is_found_in_any_block() {
        for at in [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 7, 4 * BLOCK] {
            let mut values = vec![0x3f80u16; 4 * BLOCK + 1];
            values[at..].iter_mut().step_by(BLOCK / 2).for_each(|value| *value = 0xff80);
            let mut check = FiniteCheck::new(DType::BF16);
            check.update(&values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
            assert_eq!(check.found(), Some(at as u64));
        }
    }
}
