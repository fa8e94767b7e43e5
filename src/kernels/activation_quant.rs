//! Activations as 15-bit fixed point in blocks of 32, for integer GEMV, and their order for GEMV with 4-bit codes.
//!
//! Every block of [`BLOCK`] elements has an f32 scale of its own, which makes its largest element [`INTEGER_MAX`] (block
//! floating point). So an element is off by at most a 32,766th of the largest in its block, where fp16 is off by up to a
//! 2,048th of an element.
//!
//! The limit comes from the integer instructions. [`INTEGER_MAX`] is `2^14 - 1`: the upper bits of a number, `x >> 7`, are then
//! an i8, and so are the lower seven, which is how an activation meets the byte products of VNNI. It is the limit of the integers
//! of a LUT too: eight products of the largest just fit the i32 that a lane sums. Int4 weights have scales for 32 elements or
//! a multiple, so that blocks of 32 activations never meet weights of two scales.

use super::simd::{
    ActivationQuad, BLOCK, FloatActivationQuad, Isa, LANES, Op, QUAD, SPLIT, Simd, SplitActivationQuad, WIDE,
};

/// The largest magnitude of an integer that stands for an activation or an entry of a LUT.
pub(super) const INTEGER_MAX: f32 = 16383.0;
/// 1.5 x 2^23: the sum with it has the other number, rounded to an integer with ties to even, in its lowest bits.
pub(super) const ROUND_MAGIC: f32 = 12_582_912.0;
/// Elements of a block whose largest is below this are zero: a scale could not be inverted.
pub(super) const VANISHING: f32 = 1e-30;

/// A row in blocks, as int8 weights meet it.
#[derive(Clone, Copy)]
pub(super) struct BlockActivations<'a> {
    pub(super) blocks: &'a [[i16; BLOCK]],
    /// What an integer of each block stands for; zeros make whole vectors of them.
    pub(super) scales: &'a [[f32; LANES]],
}

/// A row in quads of blocks, as weights of four bits meet it: quantized, or in f32 for LUTs in f32.
///
/// The last quad ends with the last block. Where it overlaps the quad before, its activations are zero:
///
/// ```text
/// blocks   0 1 2 3 4        quad 0: 0 1 2 3      quad 1: (1) (2) (3) 4
/// ```
#[derive(Clone, Copy)]
pub(super) struct QuadActivations<'a, Q> {
    pub(super) quads: &'a [Q],
    /// How many blocks there are.
    pub(super) blocks: usize,
}

/// Elements of memory that a row of whole blocks needs in any form.
pub(super) fn row_len(columns: usize) -> usize {
    let blocks = columns / BLOCK;
    let quads = blocks.div_ceil(QUAD) * size_of::<FloatActivationQuad>() / size_of::<f32>();
    quads.max(blocks.next_multiple_of(LANES) + columns / 2)
}

impl<'a> BlockActivations<'a> {
    /// Makes a row of whole blocks.
    ///
    /// # Panics
    /// If there is less memory than [`row_len`] says.
    pub(super) fn new(isa: Isa, x: &[f32], memory: &'a mut [f32]) -> BlockActivations<'a> {
        let (scales, rest) = memory.split_at_mut((x.len() / BLOCK).next_multiple_of(LANES));
        let (blocks, _) = bytemuck::cast_slice_mut(&mut rest[..x.len() / 2]).as_chunks_mut();
        scales.fill(0.0);
        isa.run(QuantizeBlocks { x: x.as_chunks().0, blocks, scales });
        BlockActivations { blocks, scales: scales.as_chunks().0 }
    }
}

impl<'a, Q: QuadLayout> QuadActivations<'a, Q> {
    /// Makes a row of whole blocks, four or more.
    ///
    /// # Panics
    /// If there are fewer, or less memory than [`row_len`] says.
    pub(super) fn new(isa: Isa, x: &[f32], memory: &'a mut [f32]) -> QuadActivations<'a, Q> {
        let blocks = x.len() / BLOCK;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(memory);
        let quads = bytemuck::cast_slice_mut(&mut bytes[..blocks.div_ceil(QUAD) * size_of::<Q>()]);
        isa.run(MakeQuads { x: x.as_chunks().0, quads });
        QuadActivations { quads, blocks }
    }

    /// The first block of the `i`-th four; some of the last four may be in others too.
    #[inline(always)]
    pub(super) fn first(&self, i: usize) -> usize {
        (i * QUAD).min(self.blocks - QUAD)
    }
}

/// Compiled for each instruction set; the arithmetic is the same.
struct QuantizeBlocks<'a> {
    x: &'a [[f32; BLOCK]],
    blocks: &'a mut [[i16; BLOCK]],
    scales: &'a mut [f32],
}

impl Op for QuantizeBlocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for ((x, block), scale) in self.x.iter().zip(self.blocks).zip(self.scales) {
            *scale = quantize_block(x, block);
        }
    }
}

/// A form of four blocks.
pub(super) trait QuadLayout: bytemuck::Pod + Send + Sync {
    /// Makes it, with zeros for the first blocks if these are `known` from the quad before.
    fn new<S: Simd>(s: S, x: &[[f32; BLOCK]; QUAD], known: usize) -> Self;
}

impl QuadLayout for ActivationQuad {
    #[inline(always)]
    fn new<S: Simd>(s: S, x: &[[f32; BLOCK]; QUAD], known: usize) -> ActivationQuad {
        let (blocks, scales) = quantize_quad(x, known);
        ActivationQuad { numbers: s.arrange(&blocks), scales }
    }
}

impl QuadLayout for SplitActivationQuad {
    #[inline(always)]
    fn new<S: Simd>(_: S, x: &[[f32; BLOCK]; QUAD], known: usize) -> SplitActivationQuad {
        let (blocks, scales) = quantize_quad(x, known);
        let (mut highs, mut lows) = ([[0; QUAD * WIDE]; 2], [[0; QUAD * WIDE]; 2]);
        let (pairs, _) = blocks.as_flattened().as_chunks::<2>();
        for half in [0, 1] {
            for ((pair, high), low) in pairs.iter().zip(&mut highs[half]).zip(&mut lows[half]) {
                *high = (pair[half] >> SPLIT.ilog2()) as i8;
                *low = (pair[half] & (SPLIT - 1) as i16) as i8;
            }
        }
        let mut offsets = [0; WIDE];
        for (offset, numbers) in offsets.iter_mut().zip(blocks.as_flattened().as_chunks::<8>().0) {
            *offset = -8 * numbers.iter().map(|&number| i32::from(number)).sum::<i32>();
        }
        let negated_sums = offsets.map(|offset| (offset / 8) as f32);
        SplitActivationQuad { highs, lows, offsets, negated_sums, scales }
    }
}

impl QuadLayout for FloatActivationQuad {
    #[inline(always)]
    fn new<S: Simd>(_: S, x: &[[f32; BLOCK]; QUAD], known: usize) -> FloatActivationQuad {
        let mut numbers = [[0.0; WIDE]; 8];
        let (eights, _) = x.as_flattened().as_chunks::<8>();
        for (lane, eight) in eights.iter().enumerate().skip(known * BLOCK / 8) {
            for (numbers, number) in numbers.iter_mut().zip(eight) {
                numbers[lane] = *number;
            }
        }
        FloatActivationQuad { numbers }
    }
}

/// Compiled for each instruction set; the arithmetic is the same.
struct MakeQuads<'a, Q> {
    x: &'a [[f32; BLOCK]],
    quads: &'a mut [Q],
}

impl<Q: QuadLayout> Op for MakeQuads<'_, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (i, quad) in self.quads.iter_mut().enumerate() {
            let first = (i * QUAD).min(self.x.len() - QUAD);
            *quad = Q::new(s, &self.x[first..].as_chunks().0[0], i * QUAD - first);
        }
    }
}

/// The integers of four blocks but those that are known, and the scale of each block in the lanes of the block.
#[inline(always)]
fn quantize_quad(x: &[[f32; BLOCK]; QUAD], known: usize) -> ([[i16; BLOCK]; QUAD], [f32; WIDE]) {
    let mut blocks = [[0; BLOCK]; QUAD];
    let mut scales = [[0.0; WIDE / QUAD]; QUAD];
    for ((x, block), scales) in x.iter().zip(&mut blocks).zip(&mut scales).skip(known) {
        *scales = [quantize_block(x, block); WIDE / QUAD];
    }
    let mut lanes = [0.0; WIDE];
    lanes.copy_from_slice(scales.as_flattened());
    (blocks, lanes)
}

/// Rounds numbers to integers of up to [`INTEGER_MAX`] and gives their scale, which is NaN if a number is not finite.
#[inline(always)]
fn quantize_block<const N: usize>(x: &[f32; N], out: &mut [i16; N]) -> f32 {
    // As integers, so that NaN is the largest of all.
    let largest = x.iter().fold(0, |most, x| most.max(x.abs().to_bits()));
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        out.fill(0);
        return f32::NAN;
    }
    let factor = if largest > VANISHING { INTEGER_MAX / largest } else { 0.0 };
    for (out, x) in out.iter_mut().zip(x) {
        *out = (x * factor + ROUND_MAGIC).to_bits() as i16;
    }
    largest / INTEGER_MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simd::Scalar;

    proptest! {
        #[test]
        fn no_element_is_off_by_more_than_half_an_integer(
            x in prop::array::uniform32(-3e4f32..3e4), power in -40i32..40,
        ) {
            let x = x.map(|x| x * 2f32.powi(power));
            let mut out = [0; BLOCK];
            let scale = quantize_block(&x, &mut out);
            for (x, &fixed) in x.iter().zip(&out) {
                prop_assert!((f32::from(fixed) * scale - x).abs() <= scale * 0.505, "{x} is {fixed} of {scale}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_shows_and_nothing_stays_nothing() {
        let mut out = [1; 4];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(quantize_block(&[1.0, bad, 0.0, 0.0], &mut out).is_nan());
        }
        for small in [0.0, -0.0, 1e-38] {
            assert_eq!((quantize_block(&[small; 4], &mut out) * f32::from(out[0]), out), (0.0, [0; 4]));
        }
    }

    #[test]
    fn every_form_holds_the_same_numbers() {
        let x: Vec<f32> = (0..5 * BLOCK).map(|i| (i * 37 % 101) as f32 - 40.0).collect();
        let mut memory = [(); 4].map(|()| vec![f32::NAN; row_len(x.len())]);
        let [one, two, three, four] = &mut memory;
        let row = BlockActivations::new(Isa::best(), &x, one);
        let quads = QuadActivations::<ActivationQuad>::new(Isa::Scalar(Scalar), &x, two);
        let split = QuadActivations::<SplitActivationQuad>::new(Isa::best(), &x, three);
        let floats = QuadActivations::<FloatActivationQuad>::new(Isa::best(), &x, four);
        assert_eq!((quads.quads.len(), quads.blocks, split.quads.len(), split.blocks), (2, 5, 2, 5));
        assert_eq!((floats.quads.len(), floats.blocks), (2, 5));
        // The last four begin with block 1, and the first four have all of it to block 3.
        for (four, first, new) in [(0, 0, 0), (1, 1, 4)] {
            let (quad, split) = (&quads.quads[four], &split.quads[four]);
            assert_eq!(quad.scales, split.scales);
            let mut offsets = [0; WIDE];
            for element in 0..QUAD * BLOCK {
                let (block, byte, half) = (element / BLOCK, element % BLOCK / 2, element % 2);
                let is_new = first + block >= new;
                let expected = if is_new { row.blocks[first + block][element % BLOCK] } else { 0 };
                let scale = if is_new { row.scales.as_flattened()[first + block] } else { 0.0 };
                assert_eq!(quad.scales[block * QUAD..][..QUAD], [scale; QUAD]);
                assert_eq!(quad.numbers[2 * half + byte / LANES][block * LANES + byte % LANES], expected);
                let at = block * WIDE + byte;
                let float = if is_new { x[first * BLOCK + element] } else { 0.0 };
                assert_eq!(floats.quads[four].numbers[element % 8][element / 8], float);
                let (high, low) = (i32::from(split.highs[half][at]), i32::from(split.lows[half][at]));
                assert_eq!((high * SPLIT + low, low >= 0), (expected.into(), true));
                offsets[at / 4] -= 8 * i32::from(expected);
            }
            assert_eq!(split.offsets, offsets);
            assert_eq!(split.negated_sums, offsets.map(|offset| offset as f32 / 8.0));
        }
    }
}
