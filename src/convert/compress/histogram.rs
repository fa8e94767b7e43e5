//! Counting sort of weights: how often each number occurs. fp16 has only 65536 different numbers.
//!
//! ```text
//! bits of fp16   s eeeee mmmmmmmmmm     positive: flip the sign bit; negative: flip all
//! key            ascending with the number, 0 for the least
//! ```

use half::f16;

use super::weight::numbers;
use anemeter_kernels::kmeans_1d::WeightedSamples;
use anemeter_kernels::tensor::DType;

/// Different fp16 numbers.
const KEYS: usize = 1 << 16;

/// The place of an fp16 number among all of them in ascending order.
#[inline]
fn key(bits: u16) -> u16 {
    bits ^ ((bits.cast_signed() >> 15).cast_unsigned() | 0x8000)
}

fn number(key: u16) -> f32 {
    let bits = if key & 0x8000 != 0 { key ^ 0x8000 } else { !key };
    f16::from_bits(bits).to_f32()
}

/// Turns elements into keys. fp32 elements are brought into the range of fp16 by a power of two first, so that
/// a key is exact to eleven bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Keys {
    pub(super) dtype: DType,
    factor: f32,
}

impl Keys {
    /// Keys for elements of which this is the largest magnitude.
    pub(super) fn new(dtype: DType, largest: f32) -> Keys {
        let factor = match dtype {
            DType::F16 => 1.0,
            _ if largest > 0.0 => (14.0 - largest.log2().floor()).clamp(-120.0, 120.0).exp2(),
            _ => 1.0,
        };
        Keys { dtype, factor }
    }

    /// The keys of elements.
    pub(super) fn read(&self, bytes: &[u8], floats: &mut Vec<f32>, keys: &mut Vec<u16>) {
        keys.clear();
        if self.dtype == DType::F16 {
            keys.extend(bytes.as_chunks().0.iter().map(|&half| key(u16::from_le_bytes(half))));
        } else {
            numbers(self.dtype, bytes, floats);
            keys.extend(floats.iter().map(|&x| key(f16::from_f32(x * self.factor).to_bits())));
        }
    }

    /// The number that a key stands for.
    fn number(&self, key: u16) -> f32 {
        number(key) / self.factor
    }
}

/// Whether a key is that of a number: neither infinite nor NaN.
pub(super) fn is_finite(keys: &[u16]) -> bool {
    let (least, greatest) = (key(f16::MIN.to_bits()), key(f16::MAX.to_bits()));
    keys.iter().all(|key| (least..=greatest).contains(key))
}

/// Counts of keys, and the code of each.
pub(super) struct Histogram {
    counts: Box<[u32]>,
    codes: Box<[u8]>,
}

/// A number and how often it occurs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    key: u16,
    pub(super) value: f32,
    pub(super) count: u32,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; KEYS].into(), codes: vec![0; KEYS].into() }
    }
}

impl Histogram {
    /// Counts keys.
    pub(super) fn add(&mut self, keys: &[u16]) {
        for &key in keys {
            self.counts[usize::from(key)] += 1;
        }
    }

    /// Takes out the numbers that occur, in ascending order; the counts are zero afterwards.
    pub(super) fn take(&mut self, keys: Keys, points: &mut Vec<Point>) {
        points.clear();
        for (block, counts) in self.counts.chunks_mut(64).enumerate() {
            if counts.iter().all(|&count| count == 0) {
                continue;
            }
            for (i, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
                let key = (block * 64 + i) as u16;
                points.push(Point { key, value: keys.number(key), count: *count });
                *count = 0;
            }
        }
    }

    /// Gives each of some numbers the code of the nearest centroid and sums up the squares of the distances. The
    /// centroids must be in ascending order.
    pub(super) fn assign(&mut self, points: &[Point], centroids: &[f32]) {
        let mut nearest = 0;
        for point in points {
            while nearest + 1 < centroids.len()
                && (centroids[nearest + 1] - point.value).abs() <= (centroids[nearest] - point.value).abs()
            {
                nearest += 1;
            }
            self.codes[usize::from(point.key)] = nearest as u8;
        }
    }

    /// The codes of keys.
    pub(super) fn look_up(&self, keys: &[u16], codes: &mut [u8]) {
        for (code, &key) in codes.iter_mut().zip(keys) {
            *code = self.codes[usize::from(key)];
        }
    }
}

/// Points as what is clustered.
pub(super) fn weighted_samples(points: &[Point]) -> WeightedSamples {
    WeightedSamples::new(points.iter().map(|point| (point.value, f64::from(point.count))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_the_numbers() {
        let numbers = [-65504.0, -1.0, -6e-8, 0.0, 6e-8, 0.5, 65504.0];
        let keys: Vec<u16> = numbers.iter().map(|&x| key(f16::from_f32(x).to_bits())).collect();
        assert!(keys.is_sorted());
        for (&x, &key) in numbers.iter().zip(&keys) {
            assert_eq!(number(key), f16::from_f32(x).to_f32());
        }
        assert!(is_finite(&keys));
        for bad in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY, -f16::NAN] {
            assert!(!is_finite(&[key(bad.to_bits())]));
        }
    }

    #[test]
    fn wide_numbers_are_counted_to_eleven_bits() {
        let values = [3e9f32, -1e9, 1e3];
        let keys = Keys::new(DType::F32, 3e9);
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (mut floats, mut found) = (Vec::new(), Vec::new());
        keys.read(&bytes, &mut floats, &mut found);
        let mut histogram = Histogram::default();
        histogram.add(&found);
        let mut points = Vec::new();
        histogram.take(keys, &mut points);
        for (point, expected) in points.iter().zip([-1e9f32, 1e3, 3e9]) {
            assert!((point.value - expected).abs() <= expected.abs() / 2048.0);
            assert_eq!(point.count, 1);
        }
    }
}
