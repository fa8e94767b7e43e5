//! Quantised blocks as GGUF files hold them: a fixed number of elements with scales of their own.

use std::ops::Range;

use half::f16;

/// A block format, in GGML's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the GGML type of the same name")]
#[expect(non_camel_case_types, reason = "GGML's names")]
pub enum Block {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

/// Elements of the longest block.
const LONGEST: usize = 256;

impl Block {
    /// Elements of a block.
    pub fn elements(self) -> usize {
        match self {
            Block::Q4_0 | Block::Q4_1 | Block::Q5_0 | Block::Q5_1 | Block::Q8_0 => 32,
            Block::Q2_K | Block::Q3_K | Block::Q4_K | Block::Q5_K | Block::Q6_K => LONGEST,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            Block::Q4_0 => 18,
            Block::Q4_1 => 20,
            Block::Q5_0 => 22,
            Block::Q5_1 => 24,
            Block::Q8_0 => 34,
            Block::Q2_K => 84,
            Block::Q3_K => 110,
            Block::Q4_K => 144,
            Block::Q5_K => 176,
            Block::Q6_K => 210,
        }
    }

    /// Decodes a range of elements; touches only the blocks it lies in.
    pub(super) fn read(self, bytes: &[u8], range: Range<usize>, out: &mut [f32]) {
        let (elements, size) = (self.elements(), self.bytes());
        let mut whole = [0.0; LONGEST];
        let whole = &mut whole[..elements];
        let mut at = range.start;
        let mut out = &mut out[..range.len()];
        while !out.is_empty() {
            let (block, skip) = (at / elements, at % elements);
            let source = &bytes[block * size..(block + 1) * size];
            let count = (elements - skip).min(out.len());
            let (now, rest) = out.split_at_mut(count);
            if count == elements {
                self.decode(source, now);
            } else {
                self.decode(source, whole);
                now.copy_from_slice(&whole[skip..skip + count]);
            }
            at += count;
            out = rest;
        }
    }

    /// Bits of the integers of a block and whether they are signed, where an element is no more than an integer
    /// times a scale plus a minimum.
    pub(super) fn integers(self) -> Option<(u32, bool)> {
        match self {
            Block::Q4_0 | Block::Q4_1 => Some((4, false)),
            Block::Q8_0 => Some((8, true)),
            _ => None,
        }
    }

    /// Writes the integers of a block and tells its scale and minimum; nothing where there are none.
    pub(super) fn split(self, block: &[u8], codes: &mut [u8]) -> (f32, f32) {
        let (scale, minimum, quants) = match self {
            Block::Q8_0 => {
                codes.copy_from_slice(&block[2..]);
                return (float(block, 0), 0.0);
            }
            Block::Q4_0 => (float(block, 0), -8.0 * float(block, 0), &block[2..]),
            Block::Q4_1 => (float(block, 0), float(block, 2), &block[4..]),
            _ => return (0.0, 0.0),
        };
        let (low, high) = codes.split_at_mut(16);
        for ((low, high), &q) in low.iter_mut().zip(high).zip(quants) {
            (*low, *high) = (q & 15, q >> 4);
        }
        (scale, minimum)
    }

    fn decode(self, block: &[u8], out: &mut [f32]) {
        match self {
            Block::Q4_0 => nibbles(float(block, 0), -8.0 * float(block, 0), &block[2..], None, out),
            Block::Q4_1 => nibbles(float(block, 0), float(block, 2), &block[4..], None, out),
            Block::Q5_0 => {
                nibbles(float(block, 0), -16.0 * float(block, 0), &block[6..], Some(&block[2..6]), out);
            }
            Block::Q5_1 => nibbles(float(block, 0), float(block, 2), &block[8..], Some(&block[4..8]), out),
            Block::Q8_0 => {
                let scale = float(block, 0);
                for (out, &q) in out.iter_mut().zip(&block[2..]) {
                    *out = scale * f32::from(q.cast_signed());
                }
            }
            Block::Q2_K => decode_q2_k(block, out),
            Block::Q3_K => decode_q3_k(block, out),
            Block::Q4_K => decode_q45_k(block, None, &block[16..], out),
            Block::Q5_K => decode_q45_k(block, Some(&block[16..48]), &block[48..], out),
            Block::Q6_K => decode_q6_k(block, out),
        }
    }
}

fn float(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Sixteen bytes of two elements each, the second sixteen places after the first; `fifth` has their fifth bits.
fn nibbles(scale: f32, shift: f32, quants: &[u8], fifth: Option<&[u8]>, out: &mut [f32]) {
    let (low, high) = out.split_at_mut(16);
    let bit = |i: usize| fifth.map_or(0, |bits| (bits[i / 8] >> (i % 8) & 1) << 4);
    for (i, ((low, high), &q)) in low.iter_mut().zip(high).zip(quants).enumerate() {
        *low = scale * f32::from(q & 15 | bit(i)) + shift;
        *high = scale * f32::from(q >> 4 | bit(i + 16)) + shift;
    }
}

/// Sixteen groups of sixteen: scale and minimum of four bits each, quants of two.
fn decode_q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, quants) = block.split_at(16);
    let (scale, minimum) = (float(block, 80), float(block, 82));
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let (factor, shift) =
            (scale * f32::from(scales[group] & 15), minimum * f32::from(scales[group] >> 4));
        let GroupOffset { at, bits } = GroupOffset::of(group);
        for (out, q) in out.iter_mut().zip(&quants[at..]) {
            *out = factor * f32::from(q >> bits & 3) - shift;
        }
    }
}

/// Sixteen groups of sixteen: signed scales of six bits, quants of three, whose high bits come first.
fn decode_q3_k(block: &[u8], out: &mut [f32]) {
    let (masks, rest) = block.split_at(32);
    let (quants, rest) = rest.split_at(64);
    let (scales, scale) = (&rest[..12], float(rest, 12));
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let low = scales[group % 8] >> (group / 8 * 4) & 15;
        let high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        let factor = scale * (f32::from(low | high << 4) - 32.0);
        let GroupOffset { at, bits } = GroupOffset::of(group);
        for (i, (out, q)) in out.iter_mut().zip(&quants[at..]).enumerate() {
            let high = masks[group % 2 * 16 + i] >> (group / 2) & 1;
            *out = factor * (f32::from(q >> bits & 3 | high << 2) - 4.0);
        }
    }
}

/// Where the two-bit quants of a group of sixteen are: four pairs of groups share 32 bytes.
struct GroupOffset {
    at: usize,
    bits: usize,
}

impl GroupOffset {
    fn of(group: usize) -> GroupOffset {
        GroupOffset { at: group / 8 * 32 + group % 2 * 16, bits: group % 8 / 2 * 2 }
    }
}

/// Eight groups of 32: scale and minimum of six bits each, quants of four or, with `fifth`, five.
fn decode_q45_k(block: &[u8], fifth: Option<&[u8]>, quants: &[u8], out: &mut [f32]) {
    let (scale, minimum, scales) = (float(block, 0), float(block, 2), &block[4..16]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (own, own_minimum) = match group {
            0..4 => (scales[group] & 63, scales[group + 4] & 63),
            _ => (
                scales[group + 4] & 15 | scales[group - 4] >> 6 << 4,
                scales[group + 4] >> 4 | scales[group] >> 6 << 4,
            ),
        };
        let (factor, shift) = (scale * f32::from(own), minimum * f32::from(own_minimum));
        let quants = &quants[group / 2 * 32..];
        for (i, (out, q)) in out.iter_mut().zip(quants).enumerate() {
            let fifth = fifth.map_or(0, |bits| (bits[i] >> group & 1) << 4);
            *out = factor * f32::from(q >> (group % 2 * 4) & 15 | fifth) - shift;
        }
    }
}

/// Sixteen groups of sixteen: signed scales of eight bits, quants of six in two parts.
fn decode_q6_k(block: &[u8], out: &mut [f32]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, scale) = (&rest[..16], float(rest, 16));
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let (half, quarter, odd) = (group / 8, group % 8 / 2, group % 2);
        let factor = scale * f32::from(scales[group].cast_signed());
        let low = &low[half * 64 + quarter % 2 * 32 + odd * 16..];
        let high = &high[half * 32 + odd * 16..];
        for (out, (low, high)) in out.iter_mut().zip(low.iter().zip(high)) {
            let q = low >> (quarter / 2 * 4) & 15 | (high >> (quarter * 2) & 3) << 4;
            *out = factor * (f32::from(q) - 32.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    use Block::{Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};

    const ALL: [Block; 10] = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K];

    /// `xtask/python/gguf_blocks.py` made them with the gguf package.
    #[test]
    fn random_blocks_are_what_the_gguf_package_decodes() {
        let golden = SafeTensors::deserialize(include_bytes!("testdata/gguf-blocks.safetensors")).unwrap();
        for block in ALL {
            let part = |part: &str| golden.tensor(&format!("{block:?}.{part}")).unwrap();
            let expected = crate::checkpoint::tests::floats(part("values").data());
            let mut found = vec![0.0; expected.len()];
            block.read(part("bytes").data(), 0..expected.len(), &mut found);
            assert_eq!(found, expected, "{block:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn ranges_are_parts_of_the_whole(
            seed in proptest::collection::vec(0u8..0x7c, 3 * 210),
            kind in 0usize..10, a in 0usize..768, b in 0usize..768,
        ) {
            let block = ALL[kind];
            let elements = 3 * block.elements();
            let bytes = &seed[..3 * block.bytes()];
            let mut whole = vec![0.0; elements];
            block.read(bytes, 0..elements, &mut whole);
            let (a, b) = (a % (elements + 1), b % (elements + 1));
            let range = a.min(b)..a.max(b);
            let mut part = vec![0.0; range.len()];
            block.read(bytes, range.clone(), &mut part);
            assert_eq!(part, whole[range]);
        }
    }
}
