//! One row of activations, or a table of weights, as integers of fifteen bits that share a scale.
//!
//! Every block of [`BLOCK`] elements has a scale of its own, which makes its largest element [`LARGEST`]. So an element is
//! off by at most a 32,766th of the largest in its block, where fp16 is off by up to a 2,048th of an element. Products
//! of four such pairs fit an i32, which is what a lane sums.

use super::simd::{BLOCK, Isa, LANES, Op, Simd};

/// The largest integer.
const LARGEST: f32 = 16383.0;
/// A sum with it has the other number, rounded to an integer with ties to even, in its lowest bits.
const ROUNDS: f32 = 12_582_912.0;
/// Elements of a block whose largest is below this are zero: a scale could not be inverted.
const NOTHING: f32 = 1e-30;

/// A row in blocks.
#[derive(Clone, Copy)]
pub(super) struct FixedRow<'a> {
    pub(super) blocks: &'a [[i16; BLOCK]],
    /// What an integer of each block stands for; zeros make whole vectors of them.
    pub(super) scales: &'a [[f32; LANES]],
}

/// Elements of memory that a row of whole blocks needs.
pub(super) fn row_len(columns: usize) -> usize {
    columns / 2 + (columns / BLOCK).next_multiple_of(LANES)
}

impl<'a> FixedRow<'a> {
    /// Makes a row of whole blocks. Place `i` of a block is for its element `order(i)`.
    ///
    /// # Panics
    /// If there is less memory than [`row_len`] says.
    pub(super) fn new(
        isa: Isa,
        x: &[f32],
        order: impl Fn(usize) -> usize,
        memory: &'a mut [f32],
    ) -> FixedRow<'a> {
        let (integers, scales) = memory[..row_len(x.len())].split_at_mut(x.len() / 2);
        let (blocks, _) = bytemuck::cast_slice_mut::<f32, i16>(integers).as_chunks_mut::<BLOCK>();
        scales.fill(0.0);
        isa.run(Fix { x: x.as_chunks().0, order, blocks, scales });
        FixedRow { blocks, scales: scales.as_chunks().0 }
    }
}

/// Compiled for each instruction set; the arithmetic is the same.
struct Fix<'a, O> {
    x: &'a [[f32; BLOCK]],
    order: O,
    blocks: &'a mut [[i16; BLOCK]],
    scales: &'a mut [f32],
}

impl<O: Fn(usize) -> usize> Op for Fix<'_, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for ((x, block), scale) in self.x.iter().zip(self.blocks).zip(self.scales) {
            let mut fixed = [0; BLOCK];
            *scale = fix(x, &mut fixed);
            for (i, place) in block.iter_mut().enumerate() {
                *place = fixed[(self.order)(i)];
            }
        }
    }
}

/// Makes integers of numbers and tells what one stands for: NaN if a number is not finite.
#[inline(always)]
pub(super) fn fix<const N: usize>(x: &[f32; N], out: &mut [i16; N]) -> f32 {
    // As integers, so that NaN is the largest of all.
    let largest = x.iter().fold(0, |most, x| most.max(x.abs().to_bits()));
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        out.fill(0);
        return f32::NAN;
    }
    let factor = if largest > NOTHING { LARGEST / largest } else { 0.0 };
    for (out, x) in out.iter_mut().zip(x) {
        *out = (x * factor + ROUNDS).to_bits() as i16;
    }
    largest / LARGEST
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_element_is_off_by_more_than_half_an_integer(
            x in prop::array::uniform32(-3e4f32..3e4), power in -40i32..40,
        ) {
            let x = x.map(|x| x * 2f32.powi(power));
            let mut out = [0; BLOCK];
            let scale = fix(&x, &mut out);
            for (x, &fixed) in x.iter().zip(&out) {
                prop_assert!((f32::from(fixed) * scale - x).abs() <= scale * 0.505, "{x} is {fixed} of {scale}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_shows_and_nothing_stays_nothing() {
        let mut out = [1; 4];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(fix(&[1.0, bad, 0.0, 0.0], &mut out).is_nan());
        }
        for small in [0.0, -0.0, 1e-38] {
            assert_eq!((fix(&[small; 4], &mut out) * f32::from(out[0]), out), (0.0, [0; 4]));
        }
    }

    #[test]
    fn rows_are_ordered_within_their_blocks() {
        let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
        let mut memory = vec![f32::NAN; row_len(64)];
        let row = FixedRow::new(Isa::best(), &x, |i| BLOCK - 1 - i, &mut memory);
        assert_eq!((row.blocks[0][0], row.blocks[0][31], row.blocks[1][0]), (16383, 0, 16383));
        assert_eq!(row.scales, [[31.0 / LARGEST, 63.0 / LARGEST, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]);
    }
}
