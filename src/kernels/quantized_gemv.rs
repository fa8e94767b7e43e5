//! GEMV of one row of activations with compressed weights: int4 and 4-bit LUTs, never expanded to floats.
//!
//! ```text
//! out[r] = sum over blocks b of  weight_scale[r, b] * x_scale[b] * (exact integer dot product of 32 elements)
//!
//! int8   [ w0 w1 .. w31 ]                  32 bytes; a scale per row or block (`int8_gemv.rs`)
//! int4   [ w1|w0  w3|w2  ..  w31|w30 ]     16 bytes, low half first; a scale per block or for several, and an offset
//! lut4   [ i1|i0  i3|i2  ..  i31|i30 ]     16 bytes of indices into a LUT of 16 numbers for some rows
//! ```
//!
//! A LUT that integers would not do for (`palette.rs`) is looked up in f32 and multiplied with activations in f32.
//!
//! Integer sums are exact and blocks are summed in f32 in a fixed order, so that every instruction set gives the same bits. Four
//! blocks of 4-bit codes are 64 bytes, one AVX-512 register: a quad (`simd/quad.rs` has the layouts of activations).

use half::f16;

use super::activation_quant::QuadActivations;
use super::block_shift::Shifts;
use super::palette::{Palette, Palettes};
use super::row_gemv::{GemvRows, gemv_rows};
use super::simd::{
    ActivationQuad, BLOCK, FloatActivationQuad, Load, Op, QUAD, SIGNED, Simd, SplitActivationQuad, WIDE,
};
use super::weight_gemv::{Int4Codes, Scales};

/// What [`WeightRows::is_regular`](super::weight_gemv::WeightRows::is_regular) has checked.
pub(super) const SCALES: &str = "scales of regular weights are fp16 or f32";
const OFFSETS: &str = "offsets of regular weights have the type of the codes, or are fp16 or f32";

/// Why activations are there in the form that weights need.
pub(super) const FORMS: &str = "every form that a weight needs was made";

/// Codes of four bits that are prefetched, 4 KiB after those that are used.
///
/// Rows are a few hundred bytes, with scales elsewhere, and hardware prefetchers stop at the end of a 4 KiB page. Rows of int8 and
/// fp16 are long enough for the hardware: prefetching them gained nothing.
#[derive(Clone, Copy, Default)]
struct Prefetch<'a> {
    codes: &'a [[u8; WIDE]],
}

impl<'a> Prefetch<'a> {
    /// Of the row that begins with a block.
    #[inline(always)]
    fn of(codes: &'a [[u8; WIDE]], first: usize) -> Prefetch<'a> {
        const BLOCKS: usize = 4096 / WIDE;
        Prefetch { codes: codes.get(first + BLOCKS..).unwrap_or_default() }
    }

    /// Asks for the line of memory with a block.
    #[inline(always)]
    fn fetch<S: Simd>(&self, s: S, block: usize) {
        if let Some(codes) = self.codes.get(block) {
            s.prefetch(codes);
        }
    }
}

/// 4-bit integers with a scale for each block, and an offset.
pub(super) struct Int4Gemv<'a> {
    pub(super) x: QuadActivations<'a, SplitActivationQuad>,
    pub(super) codes: Int4Codes<'a>,
    pub(super) scales: Scales<'a>,
    pub(super) first: usize,
    pub(super) out: &'a mut [f32],
}

impl Op for Int4Gemv<'_> {
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

impl Int4Gemv<'_> {
    #[inline(always)]
    fn sum<S: Simd, F: Load>(self, s: S, values: &[F]) {
        match (self.scales.block == BLOCK, self.codes.is_signed && self.codes.offsets.is_none()) {
            (true, true) => self.rows::<S, F, true, false>(s, values),
            (true, false) => self.rows::<S, F, true, true>(s, values),
            (false, true) => self.rows::<S, F, false, false>(s, values),
            (false, false) => self.rows::<S, F, false, true>(s, values),
        }
    }

    #[inline(always)]
    fn rows<S: Simd, F: Load, const OWN: bool, const SHIFTED: bool>(self, s: S, values: &[F]) {
        let Int4Gemv { x, codes, scales, first, out } = self;
        let each = scales.block / BLOCK;
        let rows = Int4Rows::<F, OWN, SHIFTED> {
            codes: codes.bytes.as_chunks().0,
            flip: if codes.is_signed { SIGNED } else { 0 },
            shifts: Shifts::of(codes).expect(OFFSETS),
            values,
            rows: scales.rows,
            each,
            count: x.blocks / each,
            x,
        };
        gemv_rows(s, &rows, first, out);
    }
}

/// Rows of 4-bit integers; every block may have its `OWN` scale, and be `SHIFTED` by an offset.
struct Int4Rows<'a, F, const OWN: bool, const SHIFTED: bool> {
    codes: &'a [[u8; WIDE]],
    /// As [`Simd::dot_int4`] takes it.
    flip: u8,
    shifts: Shifts<'a>,
    values: &'a [F],
    /// Rows that share scales.
    rows: usize,
    /// Blocks that share a scale.
    each: usize,
    /// Scales of a row.
    count: usize,
    x: QuadActivations<'a, SplitActivationQuad>,
}

impl<S: Simd, F: Load, const OWN: bool, const SHIFTED: bool> GemvRows<S> for Int4Rows<'_, F, OWN, SHIFTED> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        self.of::<S, 1>(s, row)[0]
    }

    #[inline(always)]
    fn pair(&self, s: S, row: usize) -> [S::V; 2] {
        self.of(s, row)
    }
}

impl<F: Load, const OWN: bool, const SHIFTED: bool> Int4Rows<'_, F, OWN, SHIFTED> {
    /// Products of `R` rows. Two at a time share the loads of `x`; for LUTs, which need more registers, that gained nothing.
    #[inline(always)]
    fn of<S: Simd, const R: usize>(&self, s: S, row: usize) -> [S::V; R] {
        let mut codes: [&[[u8; WIDE]]; R] = [&[]; R];
        let mut starts = [0; R];
        let mut ahead = [Prefetch::default(); R];
        for (r, ((codes, start), ahead)) in codes.iter_mut().zip(&mut starts).zip(&mut ahead).enumerate() {
            *codes = &self.codes[(row + r) * self.x.blocks..][..self.x.blocks];
            // A division costs as much as many products.
            let shared = if self.rows == 1 { row + r } else { (row + r) / self.rows };
            *start = shared * self.count;
            *ahead = Prefetch::of(self.codes, (row + r) * self.x.blocks);
        }
        let mut sums = [s.splat_wide(0.0); R];
        for (i, x) in self.x.quads.iter().enumerate() {
            let first = self.x.first(i);
            for (((sum, codes), start), ahead) in sums.iter_mut().zip(codes).zip(starts).zip(ahead) {
                ahead.fetch(s, first);
                let scales = F::spread(s, &self.four(&self.values[start..][..self.count], first));
                let scales = s.mul_wide(scales, s.load_wide(&x.scales));
                let dots = self.dots(s, &codes[first..].as_chunks().0[0], start, first, x);
                *sum = s.mul_add_wide(dots, scales, *sum);
            }
        }
        let mut lanes = [s.splat(0.0); R];
        for (lanes, sum) in lanes.iter_mut().zip(sums) {
            *lanes = s.fold_wide(sum);
        }
        lanes
    }

    /// Sums of products of integers less their offset. With an integer offset they are exact: all parts are below 2^24.
    #[inline(always)]
    fn dots<S: Simd>(
        &self,
        s: S,
        codes: &[[u8; WIDE]; QUAD],
        start: usize,
        first: usize,
        x: &SplitActivationQuad,
    ) -> S::W {
        let dots = s.dot_int4(codes, self.flip, x);
        if !SHIFTED {
            return dots;
        }
        let blocks: [usize; QUAD] = std::array::from_fn(|b| start + self.block(first + b));
        s.mul_add_wide(self.shifts.spread(s, blocks), s.load_wide(&x.negated_sums), dots)
    }

    /// Which scale of a row a block has.
    #[inline(always)]
    fn block(&self, block: usize) -> usize {
        if OWN { block } else { block / self.each }
    }

    /// The scales of four blocks of a row.
    #[inline(always)]
    fn four(&self, values: &[F], first: usize) -> [F; QUAD] {
        if OWN {
            return values[first..].as_chunks().0[0];
        }
        let mut scales = [F::zeroed(); QUAD];
        for (b, scale) in scales.iter_mut().enumerate() {
            *scale = values[self.block(first + b)];
        }
        scales
    }
}

/// 4-bit indices into LUTs of sixteen numbers.
pub(super) struct Lut4Gemv<'a> {
    /// For LUTs of integers, if there is one.
    pub(super) quantized: Option<QuadActivations<'a, ActivationQuad>>,
    /// For LUTs of floats, if there is one.
    pub(super) floats: Option<QuadActivations<'a, FloatActivationQuad>>,
    pub(super) codes: &'a [[u8; WIDE]],
    pub(super) palettes: &'a Palettes,
    /// Rows that share a LUT.
    pub(super) rows: usize,
    pub(super) first: usize,
    pub(super) out: &'a mut [f32],
}

impl Op for Lut4Gemv<'_> {
    type Output = ();

    /// LUT by LUT.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Lut4Gemv { quantized, floats, codes, palettes, rows, first, mut out } = self;
        let mut row = first;
        while !out.is_empty() {
            let (here, rest) = out.split_at_mut((rows - row % rows).min(out.len()));
            match palettes.get(row / rows) {
                Palette::Integers(integers, scale) => {
                    let x = quantized.expect(FORMS);
                    gemv_rows(s, &Lut4Rows { lut: s.lut(&integers), codes, x }, row, here);
                    here.iter_mut().for_each(|sum| *sum *= scale);
                }
                Palette::Floats(numbers) => {
                    let x = floats.expect(FORMS);
                    gemv_rows(s, &FloatLut4Rows { lut: s.float_lut(&numbers), codes, x }, row, here);
                }
            }
            row += here.len();
            out = rest;
        }
    }
}

/// Rows that share a LUT, which is in registers.
struct Lut4Rows<'a, S: Simd> {
    lut: S::Lut,
    codes: &'a [[u8; WIDE]],
    x: QuadActivations<'a, ActivationQuad>,
}

impl<S: Simd> GemvRows<S> for Lut4Rows<'_, S> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let codes = &self.codes[row * self.x.blocks..][..self.x.blocks];
        let ahead = Prefetch::of(self.codes, row * self.x.blocks);
        let mut sums = s.splat_wide(0.0);
        for (i, x) in self.x.quads.iter().enumerate() {
            ahead.fetch(s, self.x.first(i));
            let codes = &codes[self.x.first(i)..].as_chunks().0[0];
            sums = s.mul_add_wide(s.dot_lut4(codes, self.lut, x), s.load_wide(&x.scales), sums);
        }
        s.fold_wide(sums)
    }
}

/// Rows that share a LUT of floats, which is in registers.
struct FloatLut4Rows<'a, S: Simd> {
    lut: S::FloatLut,
    codes: &'a [[u8; WIDE]],
    x: QuadActivations<'a, FloatActivationQuad>,
}

impl<S: Simd> GemvRows<S> for FloatLut4Rows<'_, S> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let codes = &self.codes[row * self.x.blocks..][..self.x.blocks];
        let ahead = Prefetch::of(self.codes, row * self.x.blocks);
        // Side by side, to hide the latency of a multiply-add.
        let mut sums = [s.splat_wide(0.0); 4];
        for (i, x) in self.x.quads.iter().enumerate() {
            ahead.fetch(s, self.x.first(i));
            let codes = &codes[self.x.first(i)..].as_chunks().0[0];
            for (place, x) in x.numbers.iter().enumerate() {
                let sum = &mut sums[place % 4];
                *sum = s.mul_add_wide(s.look_up(codes, place, self.lut), s.load_wide(x), *sum);
            }
        }
        let [a, b, c, d] = sums;
        s.fold_wide(s.add_wide(s.add_wide(a, b), s.add_wide(c, d)))
    }
}
