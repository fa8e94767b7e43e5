//! GEMV of one row of activations with int8 weights, whose scale is one for each row or one for each block of a row.
//!
//! A scale for a row is applied to the finished sum. Scales for blocks are multiplied with those of the activations, eight
//! blocks at a time, so that a block takes no more multiplications than with a scale for the row.

use half::f16;

use super::activation_quant::BlockActivations;
use super::quantized_gemv::SCALES;
use super::row_gemv::{GemvRows, gemv_rows};
use super::simd::{BLOCK, LANES, Load, Op, Simd};
use super::weight_gemv::Scales;

/// int8 weights with scales.
pub(super) struct Int8Gemv<'a> {
    pub(super) x: BlockActivations<'a>,
    pub(super) codes: &'a [[i8; BLOCK]],
    pub(super) scales: Scales<'a>,
    pub(super) first: usize,
    pub(super) out: &'a mut [f32],
}

impl Op for Int8Gemv<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let values = self.scales.values;
        match values.slice::<f16>() {
            Ok(values) => self.sum(s, values),
            Err(_) => self.sum::<S, f32>(s, values.slice().expect(SCALES)),
        }
    }
}

impl Int8Gemv<'_> {
    #[inline(always)]
    fn sum<S: Simd, F: Load>(self, s: S, values: &[F]) {
        let Int8Gemv { x, codes, scales, first, out } = self;
        let (each, blocks) = (scales.block / BLOCK, x.blocks.len());
        if each == blocks {
            gemv_rows(s, &ScaledRows { codes, x }, first, out);
            return scale_rows(s, scales.rows, values, first, out);
        }
        let (rows, count) = (scales.rows, blocks / each);
        match each {
            1 => gemv_rows(s, &ScaledBlocks::<F, true> { codes, x, values, rows, each, count }, first, out),
            _ => gemv_rows(s, &ScaledBlocks::<F, false> { codes, x, values, rows, each, count }, first, out),
        }
    }
}

/// Multiplies the sums of rows by their scales.
#[inline(always)]
fn scale_rows<S: Simd, F: Load>(s: S, rows: usize, values: &[F], first: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_mut(LANES).enumerate() {
        let row = first + i * LANES;
        let mut lanes = [0.0; LANES];
        if rows == 1 {
            s.store(F::load_some(s, &values[row..]), &mut lanes);
        } else {
            for (r, lane) in lanes.iter_mut().enumerate() {
                *lane = values.get((row + r) / rows).map_or(0.0, |value| value.widen());
            }
        }
        out.iter_mut().zip(lanes).for_each(|(out, scale)| *out *= scale);
    }
}

/// Blocks that are summed side by side, to hide the latency of a multiply-add.
const WAYS: usize = 2;

/// Rows that are scaled as a whole, afterwards.
struct ScaledRows<'a> {
    codes: &'a [[i8; BLOCK]],
    x: BlockActivations<'a>,
}

impl<S: Simd> GemvRows<S> for ScaledRows<'_> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let count = self.x.blocks.len();
        let (code_groups, code_rest) = self.codes[row * count..][..count].as_chunks::<WAYS>();
        let (x_groups, x_rest) = self.x.blocks.as_chunks::<WAYS>();
        let (scale_groups, scale_rest) = self.x.scales.as_flattened()[..count].as_chunks::<WAYS>();
        let mut sums = [s.splat(0.0); WAYS];
        for ((codes, x), scales) in code_groups.iter().zip(x_groups).zip(scale_groups) {
            for i in 0..WAYS {
                sums[i] = s.mul_add(s.dot_int8(&codes[i], &x[i]), s.splat(scales[i]), sums[i]);
            }
        }
        for ((code, x), &scale) in code_rest.iter().zip(x_rest).zip(scale_rest) {
            sums[0] = s.mul_add(s.dot_int8(code, x), s.splat(scale), sums[0]);
        }
        s.add(sums[0], sums[1])
    }
}

/// Rows with scales for blocks; every block of 32 may have its `OWN`.
struct ScaledBlocks<'a, F, const OWN: bool> {
    codes: &'a [[i8; BLOCK]],
    x: BlockActivations<'a>,
    values: &'a [F],
    /// Rows that share scales.
    rows: usize,
    /// Blocks that share a scale.
    each: usize,
    /// Scales of a row.
    count: usize,
}

impl<S: Simd, F: Load, const OWN: bool> GemvRows<S> for ScaledBlocks<'_, F, OWN> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let blocks = self.x.blocks.len();
        let (code_groups, code_rest) = self.codes[row * blocks..][..blocks].as_chunks::<LANES>();
        let (x_groups, x_rest) = self.x.blocks.as_chunks::<LANES>();
        // A division costs as much as many products.
        let shared = if self.rows == 1 { row } else { row / self.rows };
        let values = &self.values[shared * self.count..][..self.count];
        let mut sums = [s.splat(0.0); WAYS];
        for (group, (codes, x)) in code_groups.iter().zip(x_groups).enumerate() {
            let factors = self.factors(s, values, group);
            for i in 0..LANES {
                sums[i % WAYS] = s.mul_add(s.dot_int8(&codes[i], &x[i]), s.splat(factors[i]), sums[i % WAYS]);
            }
        }
        if !code_rest.is_empty() {
            let factors = self.factors(s, values, code_groups.len());
            for (i, (codes, x)) in code_rest.iter().zip(x_rest).enumerate() {
                sums[i % WAYS] = s.mul_add(s.dot_int8(codes, x), s.splat(factors[i]), sums[i % WAYS]);
            }
        }
        s.add(sums[0], sums[1])
    }
}

impl<F: Load, const OWN: bool> ScaledBlocks<'_, F, OWN> {
    /// What an integer product stands for in each of eight blocks of a row, given the scales of the row.
    #[inline(always)]
    fn factors<S: Simd>(&self, s: S, values: &[F], group: usize) -> [f32; LANES] {
        let first = group * LANES;
        let scales = match OWN {
            true => F::load_some(s, &values[first..]),
            false => {
                let mut lanes = [0.0; LANES];
                for (i, lane) in lanes.iter_mut().enumerate() {
                    *lane = values.get((first + i) / self.each).map_or(0.0, |value| value.widen());
                }
                s.load(&lanes)
            }
        };
        let mut factors = [0.0; LANES];
        s.store(s.mul(scales, s.load(&self.x.scales[group])), &mut factors);
        factors
    }
}
