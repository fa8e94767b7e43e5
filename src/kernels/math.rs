//! Elementary functions of vectors: range reduction (Cody & Waite: `ln 2` in two parts) and a polynomial.
//!
//! The coefficients are minimax fits (Remez exchange in 40 digits). The bounds given here are in units of the
//! last place of the f32 result, subnormal ones included, and hold for every f32 argument; NaN gives NaN.

use super::simd::Simd;

/// `c[0] + c[1] x + c[2] x^2 + ...`
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut sum = s.splat(c[N - 1]);
    for &c in c[..N - 1].iter().rev() {
        sum = s.mul_add(sum, x, s.splat(c));
    }
    sum
}

/// `e^x`, within 1.1 ulp.
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // Beyond these the result is infinite or zero; the order of the operands lets NaN through.
    let (n, mantissa) = powers(s, s.max(s.splat(-104.0), s.min(s.splat(89.0), x)));
    // 2^n in two factors, so that neither leaves the range of f32 before the result does.
    let half = s.floor(s.mul(n, s.splat(0.5)));
    s.mul(s.mul(mantissa, s.exp2_int(half)), s.exp2_int(s.sub(n, half)))
}

/// `e^x` as a power of two and what it is to be multiplied by.
#[inline(always)]
fn powers<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    const LN_2_LOW: f32 = -1.904_654_3e-9;
    const TERMS: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_745, 0.001_381_454];
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    // `|r| <= ln 2 / 2`. Fused, the product with the upper part of ln 2 is not rounded before it is subtracted.
    let r = s.mul_add(n, s.splat(-std::f32::consts::LN_2), x);
    let r = s.mul_add(n, s.splat(-LN_2_LOW), r);
    let tail = s.mul_add(s.mul(r, r), polynomial(s, r, TERMS), r);
    (n, s.add(tail, s.splat(1.0)))
}

/// `e^x` of numbers up to zero, within 1.1 ulp; zero where it would be subnormal.
#[inline(always)]
pub(super) fn exp_of_distance<S: Simd>(s: S, x: S::V) -> S::V {
    // e^-87.3 is the least normal f32; below it `exp2_int` would need an exponent under -126.
    const LEAST: f32 = -87.0;
    let clamped = s.max(s.splat(LEAST), x);
    let (n, mantissa) = powers(s, clamped);
    s.select_gt(s.splat(LEAST), x, s.splat(0.0), s.mul(mantissa, s.exp2_int(n)))
}

/// `1 / (1 + e^-x)`, within 2.5 ulp.
#[inline(always)]
pub(super) fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    // `e^-|x|` cannot overflow: `1 / (1 + small)` for positive arguments, `small / (1 + small)` for negative ones.
    let small = exp(s, s.sub(s.splat(0.0), s.abs(x)));
    let above = s.select_gt(s.splat(0.0), x, small, s.splat(1.0));
    s.div(above, s.add(s.splat(1.0), small))
}

/// `tanh x`, within 1.5 ulp.
#[inline(always)]
pub(super) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    const TERMS: [f32; 5] = [-0.333_332_8, 0.133_314_42, -0.053_739_715, 0.020_639_088, -0.005_704_987];
    // Below, `1 - 2 / (e^2x + 1)` cancels and a polynomial takes over, as in Cephes.
    const NEAR: f32 = 0.625;
    let size = s.abs(x);
    let square = s.mul(x, x);
    let near = s.mul_add(s.mul(square, x), polynomial(s, square, TERMS), x);
    let e = exp(s, s.add(size, size));
    let far = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    s.select_gt(size, s.splat(NEAR), s.copy_sign(far, x), near)
}

/// Where [`erf_near`] gives way to [`erfc_far`].
const ERF_NEAR: f32 = 1.0;

/// `erf x` for magnitudes up to [`ERF_NEAR`].
#[inline(always)]
fn erf_near<S: Simd>(s: S, x: S::V) -> S::V {
    const TERMS: [f32; 7] = [
        0.128_379_17,
        -0.376_126_26,
        0.112_835_854,
        -0.026_853_813,
        0.005_188_327_7,
        -0.000_801_019_37,
        7.853_861_5e-5,
    ];
    s.mul_add(polynomial(s, s.mul(x, x), TERMS), x, x)
}

/// `1 - erf x` for `x` above [`ERF_NEAR`].
#[inline(always)]
fn erfc_far<S: Simd>(s: S, x: S::V) -> S::V {
    // erfc spans 38 decades; its logarithm is nearly a parabola, which a polynomial follows.
    const LOGARITHM: [f32; 10] = [
        0.000_387_737_7,
        -1.130_589_6,
        -0.631_038_55,
        -0.111_043_62,
        0.027_142_98,
        -0.005_104_344,
        0.000_702_177_47,
        -6.600_717_5e-5,
        3.767_268_3e-6,
        -9.804_908e-8,
    ];
    exp(s, polynomial(s, x, LOGARITHM))
}

/// `erf x`, within 1.5 ulp.
#[inline(always)]
pub(super) fn erf<S: Simd>(s: S, x: S::V) -> S::V {
    let size = s.abs(x);
    let far = s.copy_sign(s.sub(s.splat(1.0), erfc_far(s, size)), x);
    s.select_gt(size, s.splat(ERF_NEAR), far, erf_near(s, x))
}

/// `1 - erf x`, within 4e-6 of its size up to `x = 5` and within 1e-12 above.
#[inline(always)]
pub(super) fn erfc<S: Simd>(s: S, x: S::V) -> S::V {
    let size = s.abs(x);
    let far = erfc_far(s, size);
    let near = s.sub(s.splat(1.0), erf_near(s, size));
    let outside = s.select_gt(size, s.splat(ERF_NEAR), far, near);
    s.select_gt(s.splat(0.0), x, s.sub(s.splat(2.0), outside), outside)
}

/// `x (1 + erf(x / sqrt 2)) / 2`, within 4e-6 of its size down to `x = -5` and within 1e-11 below.
#[inline(always)]
pub(super) fn gelu<S: Simd>(s: S, x: S::V) -> S::V {
    let share = erfc(s, s.mul(x, s.splat(-std::f32::consts::FRAC_1_SQRT_2)));
    s.mul(s.mul(x, s.splat(0.5)), share)
}

/// `x / (1 + e^-x)`, within 4 ulp or 1e-43.
#[inline(always)]
pub(super) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    s.mul(x, sigmoid(s, x))
}

/// `x / (1 + e^-(1.702 x))`, within 4e-6 of its size down to `x = -5` and within 1e-9 below.
#[inline(always)]
pub(super) fn gelu_sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    s.mul(x, sigmoid(s, s.mul(x, s.splat(1.702))))
}

/// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, with the bounds of [`gelu`].
#[inline(always)]
pub(super) fn gelu_tanh<S: Simd>(s: S, x: S::V) -> S::V {
    // (1 + tanh y) / 2 is the sigmoid of 2 y, which does not cancel for negative arguments.
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    let cubic = s.mul_add(s.mul(s.mul(x, x), x), s.splat(0.044_715), x);
    s.mul(x, sigmoid(s, s.mul(cubic, s.splat(TWICE_SQRT_2_OVER_PI))))
}
