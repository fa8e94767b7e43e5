//! Scales for blocks of numbers that become integers: of several clipping ratios the one with the least squared error, all of
//! them tried while a block is in registers.
//!
//! For given integers `v` of numbers `w` the best scale is a least-squares fit, `sum w v / sum v v`; a clipping ratio decides which
//! integers they are.

use super::quantize::Range;
use super::simd::{LANES, Op, Simd, dispatch};

/// Magnitudes between which a scale is neither lost nor anything read back as infinite in fp16.
const LARGEST: f32 = 30_000.0;
const SMALLEST: f32 = 1e-4;

/// The longest block: its sums are kept in f32.
pub const LONGEST: usize = 256;

/// What is tried for each block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// Clipping ratios: shares of the tightest scale that clips nothing.
    pub clip_ratios: [f32; LANES],
    /// The integers that numbers are rounded to.
    pub range: Range,
    /// Whether scales are fp16.
    pub half: bool,
}

/// The scale for each block of `block` numbers, which must be a multiple of [`LANES`] and at most [`LONGEST`]. Besides
/// the ratios, the scale that maps the largest magnitude to the largest integer is tried; each with the scale that fits
/// its integers best. NaN where a block is all zero, not finite, or so large or small that its scale takes more care.
pub fn best_scales(values: &[f32], block: usize, search: &Search, scales: &mut [f32]) {
    dispatch(BestScales { values, block, search, scales });
}

struct BestScales<'a> {
    values: &'a [f32],
    block: usize,
    search: &'a Search,
    scales: &'a mut [f32],
}

impl Op for BestScales<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (values, scale) in self.values.chunks_exact(self.block).zip(self.scales) {
            *scale = best_scale(s, values.as_chunks().0, self.search);
        }
    }
}

#[inline(always)]
fn best_scale<S: Simd>(s: S, values: &[[f32; LANES]], search: &Search) -> f32 {
    let zero = s.splat(0.0);
    let (mut low, mut high, mut test) = (zero, zero, zero);
    for v in values {
        let v = s.load(v);
        // `max` passes over a NaN; `test` finds it, since NaN * 0 and inf * 0 are NaN and all else is 0.
        low = s.max(s.sub(zero, v), low);
        high = s.max(v, high);
        test = s.mul_add(v, zero, test);
    }
    let (low, high) = (s.reduce_max(low), s.reduce_max(high));
    let largest = low.max(high);
    if s.reduce_add(test) != 0.0 || !(SMALLEST..=LARGEST).contains(&largest) {
        return f32::NAN;
    }
    let Range { low: least, high: greatest } = search.range;
    // -8 to 7 has one negative integer more: `tight` uses it, `wide` maps the largest magnitude to 7.
    let (tight, wide) = ((high / greatest).max(low / -least), largest / greatest);
    let mut inverses = [0.0; LANES];
    let tried = s.mul(s.splat(tight), s.load(&search.clip_ratios));
    s.store(s.div(s.splat(1.0), tried), &mut inverses);
    let (mut products, mut squares) = ([0.0; LANES], [0.0; LANES]);
    for ((inverse, product), square) in inverses.into_iter().zip(&mut products).zip(&mut squares) {
        (*product, *square) = sums(s, values, inverse, search.range);
    }
    let mut best = fitted(s, products, squares, search.half);
    if wide > tight {
        let (product, square) = sums(s, values, 1.0 / wide, search.range);
        let other = fitted(s, [product; LANES], [square; LANES], search.half);
        if other.1 > best.1 {
            best = other;
        }
    }
    best.0
}

/// Sums of `w * v` and `v * v` over numbers `w` and their integers `v`.
#[inline(always)]
fn sums<S: Simd>(s: S, values: &[[f32; LANES]], inverse: f32, range: Range) -> (f32, f32) {
    let (inverse, low, high) = (s.splat(inverse), s.splat(range.low), s.splat(range.high));
    let (mut product, mut square) = (s.splat(0.0), s.splat(0.0));
    for w in values {
        let w = s.load(w);
        let v = s.min(s.max(s.round(s.mul(w, inverse)), low), high);
        product = s.mul_add(w, v, product);
        square = s.mul_add(v, v, square);
    }
    (s.reduce_add(product), s.reduce_add(square))
}

/// Of several attempts the scale that takes most off the squares, and how much that is. The stored scale nearest to the
/// one that fits best is the best of all stored scales, because what it takes off is a parabola over the scale.
#[inline(always)]
fn fitted<S: Simd>(s: S, products: [f32; LANES], squares: [f32; LANES], half: bool) -> (f32, f32) {
    let (product, square) = (s.load(&products), s.load(&squares));
    let scale = s.div(product, square);
    let scale = if half { s.round_f16(scale) } else { scale };
    // `|w|^2 - |w - scale v|^2`, of which the first term is the same for all attempts.
    let gain = s.mul(scale, s.sub(s.add(product, product), s.mul(scale, square)));
    let (mut scales, mut gains) = ([0.0; LANES], [0.0; LANES]);
    s.store(scale, &mut scales);
    s.store(gain, &mut gains);
    let mut best = (f32::NAN, f32::NEG_INFINITY);
    for (scale, gain) in scales.into_iter().zip(gains) {
        if gain > best.1 {
            best = (scale, gain);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::quantize::{Affine, encode};
    use super::super::simd::Isa;
    use super::*;

    const SEARCH: Search = Search {
        clip_ratios: [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.62],
        range: Range { low: -8.0, high: 7.0 },
        half: false,
    };

    fn noise(values: &[f32], scale: f32) -> f64 {
        let affine = Affine { scale, range: SEARCH.range, zero: 0.0, half: false };
        encode(values, &affine, &mut vec![0; values.len()]).noise
    }

    fn scale_of(values: &[f32], search: &Search) -> f32 {
        let mut scale = [0.0];
        best_scales(values, values.len(), search, &mut scale);
        scale[0]
    }

    #[test]
    fn every_instruction_set_finds_the_same() {
        let values: Vec<f32> = (0..128).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.013).collect();
        for half in [false, true] {
            let search = Search { half, ..SEARCH };
            let mut expected = [0.0; 4];
            best_scales(&values, 32, &search, &mut expected);
            assert!(expected.iter().all(|scale| scale.is_finite()));
            for isa in Isa::all() {
                let mut scales = [0.0; 4];
                isa.run(BestScales { values: &values, block: 32, search: &search, scales: &mut scales });
                assert_eq!(scales, expected, "{isa:?}");
            }
        }
    }

    #[test]
    fn blocks_that_take_more_care_are_left() {
        for value in [0.0, 1e-5, 40_000.0, f32::NAN, f32::INFINITY] {
            assert!(scale_of(&[value; 8], &SEARCH).is_nan(), "{value}");
        }
        assert!((scale_of(&[-0.5; 8], &SEARCH) - 0.0625).abs() < 1e-7, "the extra negative integer is used");
    }

    proptest! {
        #[test]
        fn no_attempt_is_better(
            numbers in proptest::collection::vec(-1f32..1.0, 32),
            power in -6i32..10,
            outlier in 1f32..20.0,
        ) {
            let mut values: Vec<f32> = numbers.iter().map(|x| x * (power as f32).exp2()).collect();
            values[7] *= outlier;
            let largest = values.iter().fold(0.0f32, |a, x| a.max(x.abs()));
            prop_assume!((SMALLEST..LARGEST).contains(&largest));
            let found = noise(&values, scale_of(&values, &SEARCH));
            let signal: f64 = values.iter().map(|&x| f64::from(x).powi(2)).sum();
            let plain = noise(&values, largest / 7.0);
            prop_assert!(found <= plain + 1e-6 * signal, "{found} against {plain} of the largest magnitude");
            let (low, high) = values.iter().fold((0.0f32, 0.0f32), |(l, h), &x| (l.max(-x), h.max(x)));
            for share in SEARCH.clip_ratios {
                let tried = noise(&values, (high / 7.0).max(low / 8.0) * share);
                prop_assert!(found <= tried + 1e-6 * signal, "{found} against {tried} of {share}");
            }
        }
    }
}
