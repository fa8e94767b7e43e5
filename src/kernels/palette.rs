//! LUTs of sixteen numbers as GEMV multiplies with them: 15-bit integers where these do, f32 where they do not.
//!
//! Integers share the scale of their LUT, so one large entry takes the precision of all others, and those are the frequent
//! ones: an error of a LUT is the same in every place that names the entry, and adds up. So integers are used only if each is
//! within `TOLERANCE` of its entry, half of what rounding the entry to fp16 could do. Any other LUT is looked up in f32
//! and meets activations in f32, where nothing but the sum is rounded. With AVX-512 one instruction looks up sixteen f32.
//! Splitting entries into two integers would take as many instructions and still have a limit.
//!
//! Entries below an eighth of the largest are within the tolerance only by luck, and every LUT from k-means has some. The scale is
//! free, so some hundred scales are tried for one that suits all entries. In a simulation of LUTs of a normal distribution that
//! was found for 98 % whose largest entry is 30 times the smallest, for 67 to 98 % at 45 times, and hardly ever if the largest is
//! ten standard deviations. LUTs decide this by themselves, so that it is the same on every machine.

use super::activation_quant::INTEGER_MAX;
use super::simd::WIDE;

/// How much of itself an entry may be off as an integer: half of the unit roundoff of fp16.
const TOLERANCE: f32 = 1.0 / 4096.0;
/// Scales that are tried, and how much smaller the largest integer is with each. The last is half of the first: a bit is all
/// that a scale may cost.
const TRIES: u16 = 512;
const STEP: u16 = 16;

/// The LUTs of a matrix.
#[derive(Debug)]
pub struct Palettes {
    luts: Box<[Palette]>,
    has_integers: bool,
    has_floats: bool,
}

/// A LUT.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Palette {
    /// Integers and what one of them stands for.
    Integers([i16; WIDE], f32),
    /// The entries themselves.
    Floats([f32; WIDE]),
}

impl Palettes {
    /// LUTs of sixteen numbers, one after the other.
    pub fn new(numbers: &[f32]) -> Palettes {
        let luts: Box<[Palette]> = numbers.as_chunks().0.iter().map(Palette::new).collect();
        let has_integers = luts.iter().any(|lut| matches!(lut, Palette::Integers(..)));
        let has_floats = luts.iter().any(|lut| matches!(lut, Palette::Floats(_)));
        Palettes { luts, has_integers, has_floats }
    }

    /// Bytes they occupy.
    pub fn stored_bytes(&self) -> usize {
        size_of_val(&self.luts[..])
    }

    pub(super) fn get(&self, lut: usize) -> Palette {
        self.luts[lut]
    }

    /// Whether any is of integers.
    pub(super) fn has_integers(&self) -> bool {
        self.has_integers
    }

    /// Whether any is of floats.
    pub(super) fn has_floats(&self) -> bool {
        self.has_floats
    }
}

impl Palette {
    fn new(entries: &[f32; WIDE]) -> Palette {
        // The smallest first: they are the ones that a scale does not suit.
        let mut sorted = *entries;
        sorted.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
        let largest = sorted[WIDE - 1].abs();
        let suits = |factor: &f32| sorted.iter().all(|entry| is_near(entry * factor));
        // NaN and infinity suit no scale, and neither does what has no inverse.
        let factor = (0..TRIES).map(|i| (INTEGER_MAX - f32::from(i * STEP)) / largest).find(suits);
        match factor {
            _ if largest == 0.0 => Palette::Integers([0; WIDE], 0.0),
            Some(factor) => Palette::Integers(
                entries.map(|entry| (entry * factor).round_ties_even() as i16),
                1.0 / factor,
            ),
            None => Palette::Floats(*entries),
        }
    }
}

/// Whether rounding a number to an integer keeps it within [`TOLERANCE`].
fn is_near(number: f32) -> bool {
    (number.round_ties_even() - number).abs() <= number.abs() * TOLERANCE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The entries that minimise the squared error of a normal distribution (Max 1960).
    const NORMAL: [f32; WIDE / 2] = [0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326];

    fn symmetric(half: [f32; WIDE / 2]) -> [f32; WIDE] {
        std::array::from_fn(|i| if i < WIDE / 2 { -half[i] } else { half[i - WIDE / 2] })
    }

    #[test]
    fn the_palette_of_a_normal_distribution_is_of_integers() {
        for largest in [2.7326, 4.0, 6.0, 10.0] {
            let mut half = NORMAL;
            half[7] = largest;
            let palette = Palette::new(&symmetric(half));
            assert!(matches!(palette, Palette::Integers(..)), "{largest}: {palette:?}");
        }
    }

    #[test]
    fn palettes_with_outliers_stay_floats() {
        for outlier in [1e3, 1e4, 1e5, f32::INFINITY, f32::NAN] {
            let mut entries = symmetric(NORMAL);
            entries[3] = outlier;
            assert!(matches!(Palette::new(&entries), Palette::Floats(_)), "{outlier}");
        }
        assert!(matches!(Palette::new(&[1e-42; WIDE]), Palette::Floats(_)), "a scale that has no inverse");
        assert_eq!(Palette::new(&[0.0; WIDE]), Palette::Integers([0; WIDE], 0.0));
    }

    proptest! {
        #[test]
        fn no_entry_is_off_by_more_than_the_tolerance(
            entries in prop::array::uniform16(-1f32..1.0), outlier in 0i32..6, power in -20i32..20,
        ) {
            let mut entries = entries.map(|entry| entry * 2f32.powi(power));
            entries[5] *= 10f32.powi(outlier);
            if let Palette::Integers(integers, scale) = Palette::new(&entries) {
                for (integer, entry) in integers.into_iter().zip(entries) {
                    let found = f32::from(integer) * scale;
                    prop_assert!(f32::from(integer.abs()) <= INTEGER_MAX);
                    prop_assert!((found - entry).abs() <= entry.abs() * TOLERANCE * 1.001, "{entry} is {found}");
                }
            }
        }
    }
}
