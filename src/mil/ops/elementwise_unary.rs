//! Elementwise functions of one operand, with or without constants.

use super::map::{self, Steps};
use super::prelude::*;
use anemeter_kernels::convert::round_f16;
use anemeter_kernels::elementwise::Unary;

pub(super) const OPS: &[OpDef] = &[
    with_int("abs", |c, o| map::numbers(c, o, f32::abs, i32::wrapping_abs)),
    plain("acos", |c, o| map::floats(c, o, f32::acos)),
    plain("asin", |c, o| map::floats(c, o, f32::asin)),
    plain("atan", |c, o| map::floats(c, o, f32::atan)),
    plain("atanh", |c, o| map::floats(c, o, f32::atanh)),
    plain("ceil", |c, o| map::floats(c, o, f32::ceil)),
    unary("clip", Ios15, |c| map::same_type_given(c, &["alpha", "beta"]), clip).takes(BOUNDS),
    unary("clip", Ios17, ordered_bounds, clip).takes(BOUNDS),
    plain("cos", |c, o| map::floats(c, o, f32::cos)),
    plain("cosh", |c, o| map::floats(c, o, f32::cosh)),
    plain("erf", |c, o| map::vectors(c, o, Unary::Erf)),
    plain("exp", |c, o| map::vectors(c, o, Unary::Exp)),
    with_int("exp2", |c, o| map::numbers(c, o, f32::exp2, |x| f64::from(x).exp2() as i32)),
    plain("floor", |c, o| map::floats(c, o, f32::floor)),
    unary("inverse", Ios15, with_epsilon, inverse).takes(INVERSE),
    unary("inverse", Ios17, with_epsilon, inverse).takes(INVERSE_17),
    unary("log", Ios15, with_epsilon, log).takes(LOG),
    unary("log", Ios17, with_epsilon, log).takes(LOG_17),
    unary("logical_not", Ios15, map::same_type, logical_not).takes(&[Param::value("x", BOOL)]),
    plain("round", |c, o| map::floats(c, o, f32::round_ties_even)),
    unary("rsqrt", Ios15, with_epsilon, rsqrt).takes(RSQRT),
    unary("rsqrt", Ios17, with_epsilon, rsqrt).takes(RSQRT_17),
    with_int("sign", |c, o| map::numbers(c, o, sign, i32::signum)),
    plain("sin", |c, o| map::floats(c, o, f32::sin)),
    plain("sinh", |c, o| map::floats(c, o, f32::sinh)),
    plain("sqrt", |c, o| map::floats(c, o, f32::sqrt)),
    with_int("square", |c, o| map::numbers(c, o, |x| x * x, |x| x.wrapping_mul(x))),
    plain("tan", |c, o| map::floats(c, o, f32::tan)),
    plain("tanh", |c, o| map::vectors(c, o, Unary::Tanh)),
    unary("threshold", Ios15, |c| map::same_type_given(c, &["alpha"]), threshold).takes(LOWER_BOUND),
];

const X: Param = Param::value("x", FLOAT).group('T');
const NUMBER: &[Param] = &[Param::value("x", FLOAT_INT)];
const BOUNDS: &[Param] =
    &[X, Param::constant("alpha", FLOAT).group('T'), Param::constant("beta", FLOAT).group('T')];
const LOWER_BOUND: &[Param] =
    &[Param::value("x", FLOAT_INT).group('T'), Param::constant("alpha", FLOAT_INT).group('T')];
const INVERSE: &[Param] = &[X, epsilon_param('T', INVERSE_EPSILON)];
const INVERSE_17: &[Param] = &[X, epsilon_param('U', INVERSE_EPSILON)];
const LOG: &[Param] = &[X, epsilon_param('T', LOG_EPSILON)];
const LOG_17: &[Param] = &[X, epsilon_param('U', LOG_EPSILON)];
const RSQRT: &[Param] = &[X, epsilon_param('T', RSQRT_EPSILON)];
const RSQRT_17: &[Param] = &[X, epsilon_param('U', RSQRT_EPSILON)];
const INVERSE_EPSILON: f32 = 1e-4;
const LOG_EPSILON: f32 = 1e-45;
const RSQRT_EPSILON: f32 = 1e-12;

const fn epsilon_param(group: char, default: f32) -> Param {
    Param::constant("epsilon", FLOAT).group(group).or_float(default)
}

const fn unary(name: &'static str, since: Opset, infer: Infer, kernel: Kernel) -> OpDef {
    define(OpClass::Elementwise, name, since, infer, kernel)
}

const fn plain(name: &'static str, kernel: Kernel) -> OpDef {
    unary(name, Ios15, map::same_type, kernel).takes(&[X])
}

const fn with_int(name: &'static str, kernel: Kernel) -> OpDef {
    unary(name, Ios15, map::same_type, kernel).takes(NUMBER)
}

fn with_epsilon(call: &Call<'_>) -> Result<Vec<Type>> {
    map::same_type_given(call, &["epsilon"])
}

fn ordered_bounds(call: &Call<'_>) -> Result<Vec<Type>> {
    let (alpha, beta) = (call.float("alpha")?, call.float("beta")?);
    refuse_if!(alpha >= beta, "`alpha` is {alpha}, not below `beta`, which is {beta}");
    map::same_type(call)
}

fn clip(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (alpha, beta) = (call.float("alpha")?, call.float("beta")?);
    map::clamped(call, outputs, alpha, beta)
}

fn threshold(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    if call.ty("x")?.dtype == DType::I32 {
        let alpha = call.int("alpha")?.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        return map::numbers(call, outputs, |x| x, |x| x.max(alpha));
    }
    let alpha = call.float("alpha")?;
    map::clamped(call, outputs, alpha, f32::INFINITY)
}

fn inverse(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (epsilon, steps) = (epsilon(call)?, Steps::of(call)?);
    map::floats(call, outputs, |x| steps.round(x + epsilon).recip())
}

fn log(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (epsilon, steps) = (epsilon(call)?, Steps::of(call)?);
    map::floats(call, outputs, |x| steps.round(x + epsilon).ln())
}

fn rsqrt(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (epsilon, steps) = (epsilon(call)?, Steps::of(call)?);
    map::floats(call, outputs, |x| steps.round(steps.round(x + epsilon).sqrt()).recip())
}

/// The given epsilon, or the default in the type of `x`.
fn epsilon(call: &Call<'_>) -> Result<f32> {
    let epsilon = call.float("epsilon")?;
    let defaulted = !call.has("epsilon") && call.ty("x")?.dtype == DType::F16;
    Ok(if defaulted { round_f16(epsilon) } else { epsilon })
}

fn logical_not(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?.bools()?;
    for (out, &x) in outputs.tensor(0)?.bools()?.iter_mut().zip(x) {
        *out = u8::from(x == 0);
    }
    Ok(())
}

fn sign(x: f32) -> f32 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(name: &str, x: &[f32], constants: &[(&str, Tensor)]) -> Vec<f32> {
        let mut args = vec![("x", tensor(&[x.len()], x))];
        args.extend(constants.iter().cloned());
        output(run(name, Ios15, &args))
    }

    #[test]
    fn rounds_halves_to_even_and_keeps_zero_without_sign() {
        assert_eq!(floats("round", &[0.5, 1.5, -0.5, 2.5, -2.51], &[]), [0.0, 2.0, 0.0, 2.0, -3.0]);
        assert_eq!(floats("sign", &[-3.0, 0.0, 2.0], &[]), [-1.0, 0.0, 1.0]);
    }

    #[test]
    fn integers_stay_integers() {
        let x = tensor(&[4], &[-3i32, 0, 2, i32::MIN]);
        for (name, expected) in [
            ("abs", [3, 0, 2, i32::MIN]),
            ("exp2", [0, 1, 4, 0]),
            ("sign", [-1, 0, 1, -1]),
            ("square", [9, 0, 4, 0]),
        ] {
            assert_eq!(output::<i32>(run(name, Ios15, &[("x", x.clone())])), expected, "{name}");
        }
        let out = run("threshold", Ios15, &[("x", x), ("alpha", Tensor::scalar(-1i32))]).unwrap();
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [-1, 0, 2, -1]);
    }

    #[test]
    fn epsilon_defaults_to_the_type_of_x_and_may_be_wider_from_ios17() {
        let x = tensor(&[1], &[f16::ZERO]);
        let value = |out: &[Tensor]| out[0].view().slice::<f16>().unwrap()[0].to_f32();
        assert_eq!(value(&run("log", Ios17, &[("x", x.clone())]).unwrap()), f32::NEG_INFINITY);
        let wide = run("log", Ios17, &[("x", x), ("epsilon", Tensor::scalar(1e-45f32))]).unwrap();
        assert_eq!(value(&wide), -103.25);
        assert_eq!(floats("rsqrt", &[0.25, 0.0], &[]), [2.0, 1e6]);
        assert_eq!(floats("inverse", &[0.5], &[("epsilon", Tensor::scalar(1.5f32))]), [0.5]);
    }

    #[test]
    fn clip_keeps_nan_and_is_strict_about_its_bounds_from_ios17() {
        let bounds = [("alpha", Tensor::scalar(2.0f32)), ("beta", Tensor::scalar(1.0f32))];
        let out = floats("clip", &[0.0, 3.0, f32::NAN], &bounds);
        assert_eq!(out[..2], [1.0, 1.0]);
        assert!(out[2].is_nan());
        let x = ("x", Tensor::scalar(0.0f32));
        let [alpha, beta] = bounds;
        refused(run("clip", Ios17, &[x, alpha, beta]), "`alpha` is 2, not below `beta`, which is 1");
    }
}
