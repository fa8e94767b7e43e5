//! The Gauss error function and its complement in f32.

/// Coefficients of `erf(x) / x` in `x²`, for `|x| < 1`.
const NEAR: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_26,
    0.112_835_854,
    -0.026_853_813,
    0.005_188_327_7,
    -0.000_801_019_4,
    7.853_861_5e-5,
];

/// Coefficients of `ln(erfc(x) / u) + x²` in `u = 2 / (2 + x)`, for `1 <= x <= 10`.
const FAR: [f32; 9] = [
    -1.265_204,
    0.993_215_3,
    0.437_265_04,
    -0.227_115_29,
    0.828_368_66,
    -1.742_920_6,
    1.437_553_8,
    -0.535_431_4,
    0.074_268_244,
];

/// The error function, to about 2e-7.
pub(super) fn erf(x: f32) -> f32 {
    match x.abs() {
        near if near < 1.0 => x * polynomial(&NEAR, x * x),
        far => (1.0 - tail(far)).copysign(x),
    }
}

/// `1 - erf(x)` without the cancellation for large `x`.
pub(super) fn erfc(x: f32) -> f32 {
    if x < 1.0 { 1.0 - erf(x) } else { tail(x) }
}

/// `erfc(x)` for `x >= 1`; NaN stays NaN.
fn tail(x: f32) -> f32 {
    if x > 10.0 {
        return 0.0;
    }
    let u = 2.0 / (2.0 + x);
    u * (polynomial(&FAR, u) - x * x).exp()
}

fn polynomial(coefficients: &[f32], x: f32) -> f32 {
    coefficients.iter().rev().fold(0.0, |sum, &c| sum * x + c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_reference_values() {
        for (x, expected) in [
            (0.0, 0.0),
            (1e-6, 1.128_379_2e-6),
            (0.5, 0.520_499_9),
            (0.999, 0.842_285_3),
            (1.0, 0.842_700_8),
            (-1.5, -0.966_105_1),
            (2.5, 0.999_593_1),
            (f32::INFINITY, 1.0),
            (f32::NEG_INFINITY, -1.0),
        ] {
            assert!((erf(x) - expected).abs() <= 2e-7, "erf({x}) = {}", erf(x));
        }
        assert!(erf(f32::NAN).is_nan());
        assert!((erfc(4.0) / 1.541_725_8e-8 - 1.0).abs() < 3e-6);
    }
}
