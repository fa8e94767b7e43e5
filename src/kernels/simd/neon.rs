//! AArch64's baseline vectors: two registers of four lanes each.

use std::arch::aarch64::*;
use std::arch::asm;

use half::f16;

use super::{ActivationQuad, LANES, Op, QUAD, SPLIT, Simd, SplitActivationQuad, WIDE};

/// Proof that the CPU has NEON, which every AArch64 CPU this crate is built for does.
#[derive(Debug, Clone, Copy)]
pub struct Neon(());

impl Neon {
    /// The proof.
    pub fn baseline() -> Neon {
        const { assert!(cfg!(target_feature = "neon"), "built for an AArch64 target without NEON") };
        Neon(())
    }
}

/// Lanes 0 to 3 and 4 to 7.
#[derive(Clone, Copy)]
pub struct Pair(float32x4_t, float32x4_t);

/// The first and the second integers of sixteen pairs.
#[derive(Clone, Copy)]
pub struct IntegerPairs {
    first: [int16x8_t; 2],
    second: [int16x8_t; 2],
}

/// Calls intrinsics that work on registers alone.
macro_rules! on_registers {
    ($call:expr) => {
        // SAFETY: `baseline` checks that the target has NEON; these instructions touch no memory.
        unsafe { $call }
    };
}

/// Applies an intrinsic to both halves.
macro_rules! halves {
    ($function:ident($($v:expr),+)) => {
        on_registers!(Pair($function($($v.0),+), $function($($v.1),+)))
    };
}

#[inline(always)]
fn widen_f16(x: uint16x4_t) -> float32x4_t {
    let wide: float32x4_t;
    // SAFETY: FCVTL from half precision is part of the baseline and works on registers alone.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", lateout(vreg) wide, in(vreg) x, options(pure, nomem, nostack));
    }
    wide
}

#[inline(always)]
fn narrow_f16(x: float32x4_t) -> uint16x4_t {
    let narrow: uint16x4_t;
    // SAFETY: FCVTN to half precision is part of the baseline and works on registers alone.
    unsafe {
        asm!("fcvtn {0:v}.4h, {1:v}.4s", lateout(vreg) narrow, in(vreg) x, options(pure, nomem, nostack));
    }
    narrow
}

impl Simd for Neon {
    type V = Pair;

    wide_as_pairs!();
    quads_in_memory!();

    type Pairs = IntegerPairs;
    type PairSums = [int32x4_t; 4];

    /// Apart: a widening multiply-add takes one product for each lane of a sum.
    #[inline(always)]
    fn load_pairs(self, words: &[i32; WIDE]) -> IntegerPairs {
        let (halves, _) = words.as_chunks::<LANES>();
        // SAFETY: NEON is in the baseline; each half covers sixteen integers of 16 bits.
        let [low, high] =
            unsafe { [vld2q_s16(halves[0].as_ptr().cast()), vld2q_s16(halves[1].as_ptr().cast())] };
        IntegerPairs { first: [low.0, high.0], second: [low.1, high.1] }
    }

    #[inline(always)]
    fn splat_pair(self, word: i32) -> IntegerPairs {
        on_registers!(IntegerPairs {
            first: [vdupq_n_s16(word as i16); 2],
            second: [vdupq_n_s16((word >> 16) as i16); 2],
        })
    }

    #[inline(always)]
    fn zero_pair_sums(self) -> [int32x4_t; 4] {
        on_registers!([vdupq_n_s32(0); 4])
    }

    #[inline(always)]
    fn dot_pairs(self, a: IntegerPairs, b: IntegerPairs, mut sums: [int32x4_t; 4]) -> [int32x4_t; 4] {
        for (half, sums) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            for (a, b) in [(a.first[half], b.first[half]), (a.second[half], b.second[half])] {
                on_registers!({
                    sums[0] = vmlal_s16(sums[0], vget_low_s16(a), vget_low_s16(b));
                    sums[1] = vmlal_high_s16(sums[1], a, b);
                });
            }
        }
        sums
    }

    #[inline(always)]
    fn pair_sums(self, sums: [int32x4_t; 4]) -> [Pair; 2] {
        let [a, b, c, d] = sums;
        on_registers!([Pair(vcvtq_f32_s32(a), vcvtq_f32_s32(b)), Pair(vcvtq_f32_s32(c), vcvtq_f32_s32(d))])
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        op.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        on_registers!(Pair(vdupq_n_f32(x), vdupq_n_f32(x)))
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Pair {
        // SAFETY: NEON is in the baseline; the reference covers both runs of four f32.
        unsafe { Pair(vld1q_f32(x.as_ptr()), vld1q_f32(x.as_ptr().add(4))) }
    }

    #[inline(always)]
    fn store(self, v: Pair, out: &mut [f32; LANES]) {
        // SAFETY: NEON is in the baseline; the reference covers both runs of four f32.
        unsafe {
            vst1q_f32(out.as_mut_ptr(), v.0);
            vst1q_f32(out.as_mut_ptr().add(4), v.1);
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> Pair {
        // SAFETY: NEON is in the baseline; `f16` is a transparent `u16` and the reference covers eight.
        let halves = unsafe { vld1q_u16(x.as_ptr().cast()) };
        on_registers!(Pair(widen_f16(vget_low_u16(halves)), widen_f16(vget_high_u16(halves))))
    }

    #[inline(always)]
    fn store_f16(self, v: Pair, out: &mut [f16; LANES]) {
        // SAFETY: NEON is in the baseline; `f16` is a transparent `u16` and the reference covers eight.
        unsafe { vst1q_u16(out.as_mut_ptr().cast(), vcombine_u16(narrow_f16(v.0), narrow_f16(v.1))) }
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Pair {
        // SAFETY: NEON is in the baseline; the reference covers eight bytes.
        let wide = unsafe { vmovl_s8(vld1_s8(x.as_ptr())) };
        on_registers!(Pair(
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))),
            vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide)))
        ))
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> Pair {
        // SAFETY: NEON is in the baseline; the reference covers eight bytes.
        let wide = unsafe { vmovl_u8(vld1_u8(x.as_ptr())) };
        on_registers!(Pair(
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))),
            vcvtq_f32_u32(vmovl_u16(vget_high_u16(wide)))
        ))
    }

    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        halves!(vaddq_f32(a, b))
    }

    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        halves!(vsubq_f32(a, b))
    }

    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        halves!(vmulq_f32(a, b))
    }

    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        halves!(vdivq_f32(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: Pair, b: Pair, c: Pair) -> Pair {
        halves!(vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        self.select_gt(a, b, a, b)
    }

    #[inline(always)]
    fn min(self, a: Pair, b: Pair) -> Pair {
        self.select_gt(b, a, a, b)
    }

    #[inline(always)]
    fn select_gt(self, a: Pair, b: Pair, x: Pair, y: Pair) -> Pair {
        on_registers!(Pair(
            vbslq_f32(vcgtq_f32(a.0, b.0), x.0, y.0),
            vbslq_f32(vcgtq_f32(a.1, b.1), x.1, y.1)
        ))
    }

    #[inline(always)]
    fn select_nan(self, test: Pair, x: Pair, y: Pair) -> Pair {
        on_registers!(Pair(
            vbslq_f32(vceqq_f32(test.0, test.0), y.0, x.0),
            vbslq_f32(vceqq_f32(test.1, test.1), y.1, x.1)
        ))
    }

    #[inline(always)]
    fn abs(self, v: Pair) -> Pair {
        halves!(vabsq_f32(v))
    }

    #[inline(always)]
    fn copy_sign(self, magnitude: Pair, sign: Pair) -> Pair {
        on_registers!({
            let bit = vdupq_n_u32(1 << 31);
            Pair(vbslq_f32(bit, sign.0, magnitude.0), vbslq_f32(bit, sign.1, magnitude.1))
        })
    }

    #[inline(always)]
    fn sqrt(self, v: Pair) -> Pair {
        halves!(vsqrtq_f32(v))
    }

    #[inline(always)]
    fn floor(self, v: Pair) -> Pair {
        halves!(vrndmq_f32(v))
    }

    #[inline(always)]
    fn round(self, v: Pair) -> Pair {
        halves!(vrndnq_f32(v))
    }

    #[inline(always)]
    fn exp2_int(self, v: Pair) -> Pair {
        on_registers!({
            let bias = vdupq_n_s32(127);
            Pair(
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(v.0), bias))),
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(v.1), bias))),
            )
        })
    }

    #[inline(always)]
    fn round_f16(self, v: Pair) -> Pair {
        Pair(widen_f16(narrow_f16(v.0)), widen_f16(narrow_f16(v.1)))
    }

    #[inline(always)]
    fn reduce_add(self, v: Pair) -> f32 {
        on_registers!({
            let four = vaddq_f32(v.0, v.1);
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        })
    }

    #[inline(always)]
    fn reduce_max(self, v: Pair) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(v, &mut lanes);
        super::Scalar.reduce_max(lanes)
    }

    #[inline(always)]
    fn transpose(self, rows: [Pair; LANES]) -> [Pair; LANES] {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
        let top_left = transpose_4x4([r0.0, r1.0, r2.0, r3.0]);
        let top_right = transpose_4x4([r0.1, r1.1, r2.1, r3.1]);
        let bottom_left = transpose_4x4([r4.0, r5.0, r6.0, r7.0]);
        let bottom_right = transpose_4x4([r4.1, r5.1, r6.1, r7.1]);
        [
            Pair(top_left[0], bottom_left[0]),
            Pair(top_left[1], bottom_left[1]),
            Pair(top_left[2], bottom_left[2]),
            Pair(top_left[3], bottom_left[3]),
            Pair(top_right[0], bottom_right[0]),
            Pair(top_right[1], bottom_right[1]),
            Pair(top_right[2], bottom_right[2]),
            Pair(top_right[3], bottom_right[3]),
        ]
    }
}

#[inline(always)]
fn transpose_4x4(r: [float32x4_t; 4]) -> [float32x4_t; 4] {
    on_registers!({
        let (a, b) = (vzip1q_f32(r[0], r[2]), vzip2q_f32(r[0], r[2]));
        let (c, d) = (vzip1q_f32(r[1], r[3]), vzip2q_f32(r[1], r[3]));
        [vzip1q_f32(a, c), vzip2q_f32(a, c), vzip1q_f32(b, d), vzip2q_f32(b, d)]
    })
}
