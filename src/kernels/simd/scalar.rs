//! The portable instruction set: arrays of lanes. It defines what the others compute.

use half::f16;

use super::{ActivationQuad, LANES, Op, QUAD, SPLIT, Simd, SplitActivationQuad, WIDE};

/// Plain Rust; needs nothing of the CPU.
#[derive(Debug, Clone, Copy)]
pub struct Scalar;

type Lanes = [f32; LANES];

#[inline(always)]
fn zip(a: Lanes, b: Lanes, f: impl Fn(f32, f32) -> f32) -> Lanes {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// `a * b + c` rounded once, on CPUs where `f32::mul_add` would be a slow library call.
///
/// The product is exact in f64. The sum is rounded to odd, which keeps enough of what was lost for the final
/// rounding to f32 to be right.
#[inline]
pub(super) fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64", miri)) {
        return a.mul_add(b, c);
    }
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let part = sum - product;
    let lost = (product - (sum - part)) + (c - part);
    let bits = sum.to_bits();
    let is_even = bits & 1 == 0;
    let away = is_even & ((lost > 0.0) & (sum > 0.0) | (lost < 0.0) & (sum < 0.0));
    let towards = is_even & ((lost > 0.0) & (sum < 0.0) | (lost < 0.0) & (sum > 0.0));
    f64::from_bits(bits.wrapping_add(u64::from(away)).wrapping_sub(u64::from(towards))) as f32
}

/// Rounds to the nearest fp16 value.
#[inline(always)]
pub(crate) fn round_f16(x: f32) -> f32 {
    const SMALLEST_NORMAL: u32 = 0x3880_0000;
    const OVERFLOW: u32 = 0x4780_0000;
    const INFINITY: u32 = 0x7f80_0000;
    let magnitude = x.abs();
    let bits = magnitude.to_bits();
    let rounded = if bits < SMALLEST_NORMAL {
        // Half of one has the spacing of fp16 subnormals.
        (magnitude + 0.5) - 0.5
    } else {
        let bits = (bits + 0xfff + (bits >> 13 & 1)) & !0x1fff;
        f32::from_bits(if bits >= OVERFLOW { INFINITY } else { bits })
    };
    if x.is_nan() { x } else { rounded.copysign(x) }
}

impl Simd for Scalar {
    type V = Lanes;

    wide_as_pairs!();
    quads_in_memory!();

    type Pairs = [i32; WIDE];
    type PairSums = [i32; WIDE];

    #[inline(always)]
    fn load_pairs(self, words: &[i32; WIDE]) -> [i32; WIDE] {
        *words
    }

    #[inline(always)]
    fn splat_pair(self, word: i32) -> [i32; WIDE] {
        [word; WIDE]
    }

    #[inline(always)]
    fn zero_pair_sums(self) -> [i32; WIDE] {
        [0; WIDE]
    }

    #[inline(always)]
    fn dot_pairs(self, a: [i32; WIDE], b: [i32; WIDE], sums: [i32; WIDE]) -> [i32; WIDE] {
        let product = |a: i32, b: i32| i32::from(a as i16) * i32::from(b as i16) + (a >> 16) * (b >> 16);
        std::array::from_fn(|i| sums[i] + product(a[i], b[i]))
    }

    #[inline(always)]
    fn pair_sums(self, sums: [i32; WIDE]) -> [Lanes; 2] {
        self.load_wide(&sums.map(|sum| sum as f32))
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        op.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Lanes {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, x: &Lanes) -> Lanes {
        *x
    }

    #[inline(always)]
    fn store(self, v: Lanes, out: &mut Lanes) {
        *out = v;
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> Lanes {
        x.map(f16::to_f32_const)
    }

    #[inline(always)]
    fn store_f16(self, v: Lanes, out: &mut [f16; LANES]) {
        *out = v.map(f16::from_f32_const);
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Lanes {
        x.map(f32::from)
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> Lanes {
        x.map(f32::from)
    }

    #[inline(always)]
    fn add(self, a: Lanes, b: Lanes) -> Lanes {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Lanes, b: Lanes) -> Lanes {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Lanes, b: Lanes) -> Lanes {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Lanes, b: Lanes) -> Lanes {
        zip(a, b, |a, b| a / b)
    }

    // Large, and in need of no instruction set: not worth a copy in every kernel.
    #[inline(never)]
    fn mul_add(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes {
        std::array::from_fn(|i| fused(a[i], b[i], c[i]))
    }

    #[inline(always)]
    fn max(self, a: Lanes, b: Lanes) -> Lanes {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: Lanes, b: Lanes) -> Lanes {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn select_gt(self, a: Lanes, b: Lanes, x: Lanes, y: Lanes) -> Lanes {
        std::array::from_fn(|i| if a[i] > b[i] { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn select_nan(self, test: Lanes, x: Lanes, y: Lanes) -> Lanes {
        std::array::from_fn(|i| if test[i].is_nan() { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn abs(self, v: Lanes) -> Lanes {
        v.map(f32::abs)
    }

    #[inline(always)]
    fn copy_sign(self, magnitude: Lanes, sign: Lanes) -> Lanes {
        zip(magnitude, sign, f32::copysign)
    }

    #[inline(always)]
    fn sqrt(self, v: Lanes) -> Lanes {
        v.map(f32::sqrt)
    }

    #[inline(always)]
    fn floor(self, v: Lanes) -> Lanes {
        v.map(f32::floor)
    }

    #[inline(always)]
    fn round(self, v: Lanes) -> Lanes {
        v.map(f32::round_ties_even)
    }

    #[inline(always)]
    fn exp2_int(self, v: Lanes) -> Lanes {
        v.map(|x| f32::from_bits((x as i32 as u32).wrapping_add(127) << 23))
    }

    #[inline(always)]
    fn round_f16(self, v: Lanes) -> Lanes {
        v.map(round_f16)
    }

    #[inline(always)]
    fn reduce_add(self, v: Lanes) -> f32 {
        let pairs = [v[0] + v[4], v[1] + v[5], v[2] + v[6], v[3] + v[7]];
        (pairs[0] + pairs[2]) + (pairs[1] + pairs[3])
    }

    #[inline(always)]
    fn reduce_max(self, v: Lanes) -> f32 {
        let max = |a, b| if a > b { a } else { b };
        let pairs = [max(v[0], v[4]), max(v[1], v[5]), max(v[2], v[6]), max(v[3], v[7])];
        max(max(pairs[0], pairs[2]), max(pairs[1], pairs[3]))
    }

    #[inline(always)]
    fn transpose(self, rows: [Lanes; LANES]) -> [Lanes; LANES] {
        std::array::from_fn(|j| std::array::from_fn(|i| rows[i][j]))
    }
}
