//! Uniform quantisation by round to nearest: the extent of numbers, the least-squares scale of their integers, codes
//! with what they lose (SNR, cosine), and bit fields packed without gaps.
//!
//! ```text
//! v = clamp(round(w / scale), low, high)        code = v + zero        read back: scale * (code - zero)
//! ```

use std::ops::AddAssign;

use super::simd::{LANES, Op, Simd, dispatch};

/// Elements whose sums are kept in f32 before they join a sum in f64.
const RUN: usize = 4096;

/// 1.5 x 2^23: adding it to a number of small magnitude leaves the nearest integer in the low bits.
const MAGIC: f32 = 12_582_912.0;

/// The least and the greatest of some numbers; zero lies between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extent {
    /// The least, or zero.
    pub min: f32,
    /// The greatest, or zero.
    pub max: f32,
    /// Whether all numbers are finite.
    pub is_finite: bool,
}

/// The extent of some numbers.
pub fn extent(values: &[f32]) -> Extent {
    dispatch(FindExtent(values))
}

struct FindExtent<'a>(&'a [f32]);

impl Op for FindExtent<'_> {
    type Output = Extent;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Extent {
        let zero = s.splat(0.0);
        let (mut low, mut high, mut test) = (zero, zero, zero);
        let (vectors, rest) = self.0.as_chunks::<LANES>();
        for v in vectors {
            let v = s.load(v);
            low = s.max(s.sub(zero, v), low);
            high = s.max(v, high);
            // 0 unless a number is not finite: NaN * 0 and inf * 0 are NaN.
            test = s.mul_add(v, zero, test);
        }
        let (mut min, mut max) = (-s.reduce_max(low), s.reduce_max(high));
        let mut test = s.reduce_add(test);
        for &x in rest {
            min = min.min(x);
            max = max.max(x);
            test += x * 0.0;
        }
        Extent { min: min.min(0.0), max, is_finite: test == 0.0 }
    }
}

/// Integers from `low` to `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The least.
    pub low: f32,
    /// The greatest.
    pub high: f32,
}

/// Numbers `w` and the integers `v` they were rounded to, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
    /// Sum of `w * v`.
    pub product: f64,
    /// Sum of `v * v`.
    pub square: f64,
}

impl Sums {
    /// The factor for the integers that comes nearest to the numbers.
    pub fn best_scale(&self) -> f64 {
        self.product / self.square
    }

    /// By how much `factor` times the integers is nearer to the numbers than zero is, in squares.
    pub fn gain(&self, factor: f64) -> f64 {
        factor * (2.0 * self.product - factor * self.square)
    }
}

/// Rounds numbers times `inverse` to integers of a range and sums up.
pub fn round_to_range(values: &[f32], inverse: f32, range: Range) -> Sums {
    let mut sums = Sums::default();
    for values in values.chunks(RUN) {
        let (product, square) = dispatch(RoundToRange { values, inverse, range });
        sums.product += f64::from(product);
        sums.square += f64::from(square);
    }
    sums
}

struct RoundToRange<'a> {
    values: &'a [f32],
    inverse: f32,
    range: Range,
}

impl Op for RoundToRange<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32) {
        let (inverse, low, high) = (s.splat(self.inverse), s.splat(self.range.low), s.splat(self.range.high));
        let (mut product, mut square) = (s.splat(0.0), s.splat(0.0));
        let (vectors, rest) = self.values.as_chunks::<LANES>();
        for w in vectors {
            let w = s.load(w);
            let v = s.min(s.max(s.round(s.mul(w, inverse)), low), high);
            product = s.mul_add(w, v, product);
            square = s.mul_add(v, v, square);
        }
        let (mut product, mut square) = (s.reduce_add(product), s.reduce_add(square));
        for &w in rest {
            let v = (w * self.inverse).round_ties_even().clamp(self.range.low, self.range.high);
            product += w * v;
            square += v * v;
        }
        (product, square)
    }
}

/// What is lost between numbers `w` and what is read back for them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Sum of `w * w`.
    pub signal: f64,
    /// Sum of the squares of the differences.
    pub noise: f64,
    /// Sum of the squares of what is read back.
    pub decoded: f64,
}

impl AddAssign for Loss {
    fn add_assign(&mut self, other: Loss) {
        self.signal += other.signal;
        self.noise += other.noise;
        self.decoded += other.decoded;
    }
}

impl Loss {
    /// The loss between numbers and others.
    pub fn between(values: &[f32], decoded: &[f32]) -> Loss {
        let mut loss = Loss::default();
        for (&w, &d) in values.iter().zip(decoded) {
            let (w, d) = (f64::from(w), f64::from(d));
            loss += Loss { signal: w * w, noise: (w - d) * (w - d), decoded: d * d };
        }
        loss
    }

    /// Signal to noise in decibels; nothing if nothing is lost.
    pub fn snr(&self) -> Option<f64> {
        (self.noise > 0.0).then(|| 10.0 * (self.signal / self.noise).log10())
    }

    /// The cosine between the numbers and what is read back; one if nothing is lost.
    pub fn cosine(&self) -> f64 {
        // `|w - d|^2 = |w|^2 + |d|^2 - 2 w . d`.
        let product = (self.signal + self.decoded - self.noise) / 2.0;
        match (self.signal * self.decoded).sqrt() {
            _ if self.noise == 0.0 => 1.0,
            0.0 => 0.0,
            norms => product / norms,
        }
    }
}

/// How integers stand for numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    /// What an integer is multiplied by.
    pub scale: f32,
    /// The integers that numbers are rounded to.
    pub range: Range,
    /// What is added to an integer to give its code.
    pub zero: f32,
    /// Whether a number read back is rounded to fp16.
    pub half: bool,
}

/// Writes the code of each number: an integer of at most eight bits, in two's complement if negative.
pub fn encode(values: &[f32], affine: &Affine, codes: &mut [u8]) -> Loss {
    let mut loss = Loss::default();
    for (values, codes) in values.chunks(RUN).zip(codes.chunks_mut(RUN)) {
        let [signal, noise, decoded] = dispatch(Encode { values, affine, codes });
        loss += Loss { signal: signal.into(), noise: noise.into(), decoded: decoded.into() };
    }
    loss
}

struct Encode<'a> {
    values: &'a [f32],
    affine: &'a Affine,
    codes: &'a mut [u8],
}

impl Op for Encode<'_> {
    type Output = [f32; 3];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; 3] {
        let Affine { scale, range, zero, half } = *self.affine;
        let (factor, inverse, shift) = (s.splat(scale), s.splat(1.0 / scale), s.splat(zero + MAGIC));
        let (low, high) = (s.splat(range.low), s.splat(range.high));
        let mut sums = [s.splat(0.0); 3];
        let (vectors, rest) = self.values.as_chunks::<LANES>();
        let (codes, codes_rest) = self.codes.as_chunks_mut::<LANES>();
        for (w, codes) in vectors.iter().zip(codes) {
            let w = s.load(w);
            let v = s.min(s.max(s.round(s.mul(w, inverse)), low), high);
            let mut fields = [0.0; LANES];
            // The low mantissa bits of `v + zero + MAGIC` are the code, a negative one in two's complement.
            s.store(s.add(v, shift), &mut fields);
            for (code, field) in codes.iter_mut().zip(fields) {
                *code = (field.to_bits() & 0xff) as u8;
            }
            let product = s.mul(v, factor);
            let read = if half { s.round_f16(product) } else { product };
            let error = s.sub(w, read);
            sums[0] = s.mul_add(w, w, sums[0]);
            sums[1] = s.mul_add(error, error, sums[1]);
            sums[2] = s.mul_add(read, read, sums[2]);
        }
        let mut sums = sums.map(|sum| s.reduce_add(sum));
        for (&w, code) in rest.iter().zip(codes_rest) {
            let v = (w * (1.0 / scale)).round_ties_even().clamp(range.low, range.high);
            *code = ((v + (zero + MAGIC)).to_bits() & 0xff) as u8;
            let read = if half { super::convert::round_f16(v * scale) } else { v * scale };
            for (sum, term) in sums.iter_mut().zip([w * w, (w - read) * (w - read), read * read]) {
                *sum += term;
            }
        }
        sums
    }
}

/// Bit fields that follow each other without gaps, least significant bit first.
#[derive(Debug)]
pub struct Packer {
    bits: u32,
    held: u64,
    filled: u32,
}

impl Packer {
    /// For fields of 1 to 8 bits.
    pub fn new(bits: u32) -> Packer {
        Packer { bits, held: 0, filled: 0 }
    }

    /// Adds the low bits of each code to the bytes that are complete.
    pub fn push(&mut self, codes: &[u8], out: &mut Vec<u8>) {
        if self.filled == 0 && self.bits == 8 {
            return out.extend_from_slice(codes);
        }
        out.reserve(codes.len() * self.bits as usize / 8 + 8);
        let (groups, rest) = codes.as_chunks::<8>();
        match self.bits {
            1 => self.groups::<1>(groups, out),
            2 => self.groups::<2>(groups, out),
            3 => self.groups::<3>(groups, out),
            4 => self.groups::<4>(groups, out),
            6 => self.groups::<6>(groups, out),
            _ => groups.iter().for_each(|group| self.push_each(group, out)),
        }
        self.push_each(rest, out);
    }

    /// Eight fields of `BITS` are `BITS` bytes.
    fn groups<const BITS: usize>(&mut self, groups: &[[u8; 8]], out: &mut Vec<u8>) {
        let mask = (1u64 << BITS) - 1;
        // Eight fields are whole bytes, so that `filled` is the same afterwards.
        let (mut held, filled) = (self.held, self.filled);
        for group in groups {
            let mut word = 0;
            for (i, &code) in group.iter().enumerate() {
                word |= (u64::from(code) & mask) << (i * BITS);
            }
            held |= word << filled;
            out.extend_from_slice(&held.to_le_bytes()[..BITS]);
            held >>= BITS * 8;
        }
        self.held = held;
    }

    fn push_each(&mut self, codes: &[u8], out: &mut Vec<u8>) {
        let mask = (1u64 << self.bits) - 1;
        for &code in codes {
            self.held |= (u64::from(code) & mask) << self.filled;
            self.filled += self.bits;
            if self.filled >= 8 {
                out.push((self.held & 0xff) as u8);
                self.held >>= 8;
                self.filled -= 8;
            }
        }
    }

    /// Adds the last byte, if it has not been filled.
    pub fn finish(self, out: &mut Vec<u8>) {
        if self.filled > 0 {
            out.push((self.held & 0xff) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::Isa;
    use super::*;
    use crate::tensor::packed;

    fn wave(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.013).collect()
    }

    #[test]
    fn extents_reach_zero_and_see_what_is_not_finite() {
        for len in [1, 8, 21] {
            let values = wave(len);
            let found = extent(&values);
            assert_eq!(found.min, values.iter().copied().fold(0.0, f32::min));
            assert_eq!(found.max, values.iter().copied().fold(0.0, f32::max));
            assert!(found.is_finite);
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, len - 1] {
                    let mut values = values.clone();
                    values[at] = bad;
                    assert!(!extent(&values).is_finite, "{bad} at {at}");
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_rounds_alike() {
        let values = wave(77);
        let affine = Affine { scale: 0.02, range: Range { low: -8.0, high: 7.0 }, zero: 8.0, half: true };
        let mut expected = vec![0; 77];
        let reference = Isa::Scalar(super::super::simd::Scalar);
        let sums = reference.run(Encode { values: &values, affine: &affine, codes: &mut expected });
        for (&w, &code) in values.iter().zip(&expected) {
            assert_eq!(f32::from(code), (w * (1.0 / 0.02)).round_ties_even().clamp(-8.0, 7.0) + 8.0);
        }
        for isa in Isa::all() {
            let mut codes = vec![0; 77];
            assert_eq!(isa.run(Encode { values: &values, affine: &affine, codes: &mut codes }), sums);
            assert_eq!(codes, expected, "{isa:?}");
        }
    }

    #[test]
    fn gain_is_what_the_loss_says() {
        let values = wave(1000);
        let range = Range { low: -128.0, high: 127.0 };
        let sums = round_to_range(&values, 1.0 / 0.005, range);
        let affine = Affine { scale: 0.005, range, zero: 0.0, half: false };
        let loss = encode(&values, &affine, &mut vec![0; 1000]);
        assert!((loss.signal - loss.noise - sums.gain(f64::from(0.005f32))).abs() < 1e-5 * loss.signal);
        assert!(sums.gain(sums.best_scale()) >= sums.gain(0.005));
        assert!(loss.cosine() > 0.999 && loss.cosine() <= 1.0);
    }

    proptest::proptest! {
        #[test]
        fn pieces_of_any_length_are_packed_as_one(
            bits in 1u32..=8,
            pieces in proptest::collection::vec(proptest::collection::vec(0u8.., 0..40), 0..6),
        ) {
            let (mut packer, mut out) = (Packer::new(bits), Vec::new());
            pieces.iter().for_each(|piece| packer.push(piece, &mut out));
            packer.finish(&mut out);
            assert_eq!(out, packed::pack(pieces.concat(), bits));
        }
    }
}
