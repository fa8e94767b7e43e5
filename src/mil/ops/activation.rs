//! Elementwise activations.

use super::map::{self, Steps};
use super::prelude::*;
use anemeter_kernels::elementwise::Unary;

pub(super) const OPS: &[OpDef] = &[
    alpha_beta("clamped_relu", Ios15, ALPHA_BETA, clamped_relu),
    alpha_beta("clamped_relu", Ios17, ALPHA_BETA_17, clamped_relu),
    alpha("elu", Ios15, ALPHA, elu),
    alpha("elu", Ios17, ALPHA_17, elu),
    define(OpClass::Elementwise, "gelu", Ios15, infer_gelu, gelu)
        .takes(&[X, Param::constant("mode", TEXT).or_text("EXACT")]),
    alpha("leaky_relu", Ios15, ALPHA, leaky_relu),
    alpha("leaky_relu", Ios17, ALPHA_17, leaky_relu),
    alpha_beta("linear_activation", Ios15, ALPHA_BETA, linear_activation),
    alpha_beta("linear_activation", Ios17, ALPHA_BETA_17, linear_activation),
    plain("relu", |c, o| map::clamped(c, o, 0.0, f32::INFINITY)),
    plain("relu6", |c, o| map::clamped(c, o, 0.0, 6.0)),
    alpha_beta("scaled_tanh", Ios15, ALPHA_BETA, scaled_tanh),
    alpha_beta("scaled_tanh", Ios17, ALPHA_BETA_17, scaled_tanh),
    plain("sigmoid", |c, o| map::vectors(c, o, Unary::Sigmoid)),
    alpha_beta("sigmoid_hard", Ios15, ALPHA_BETA, sigmoid_hard),
    alpha_beta("sigmoid_hard", Ios17, ALPHA_BETA_17, sigmoid_hard),
    plain("silu", silu),
    plain("softplus", |c, o| map::floats(c, o, softplus)),
    plain("softsign", softsign),
    alpha("thresholded_relu", Ios15, ALPHA, thresholded_relu),
    alpha("thresholded_relu", Ios17, ALPHA_17, thresholded_relu),
];

const X: Param = Param::value("x", FLOAT).group('T');
const ALPHA: &[Param] = &[X, Param::constant("alpha", FLOAT).group('T')];
const ALPHA_17: &[Param] = &[X, Param::constant("alpha", FLOAT).group('U')];
const ALPHA_BETA: &[Param] =
    &[X, Param::constant("alpha", FLOAT).group('T'), Param::constant("beta", FLOAT).group('T')];
const ALPHA_BETA_17: &[Param] =
    &[X, Param::constant("alpha", FLOAT).group('U'), Param::constant("beta", FLOAT).group('U')];

const fn plain(name: &'static str, kernel: Kernel) -> OpDef {
    define(OpClass::Elementwise, name, Ios15, map::same_type, kernel).takes(&[X])
}

const fn alpha(name: &'static str, since: Opset, params: &'static [Param], kernel: Kernel) -> OpDef {
    define(OpClass::Elementwise, name, since, |call| map::same_type_given(call, &["alpha"]), kernel)
        .takes(params)
}

const fn alpha_beta(name: &'static str, since: Opset, params: &'static [Param], kernel: Kernel) -> OpDef {
    let infer = |call: &Call<'_>| map::same_type_given(call, &["alpha", "beta"]);
    define(OpClass::Elementwise, name, since, infer, kernel).takes(params)
}

fn clamped_relu(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (alpha, beta, steps) = (call.float("alpha")?, call.float("beta")?, Steps::of(call)?);
    map::floats(call, outputs, |x| {
        let leaky = if x < 0.0 { steps.round(alpha * x) } else { x };
        if leaky > beta { beta } else { leaky }
    })
}

fn elu(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (alpha, steps) = (call.float("alpha")?, Steps::of(call)?);
    map::floats(call, outputs, |x| if x > 0.0 { x } else { alpha * steps.round(x.exp_m1()) })
}

fn leaky_relu(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let alpha = call.float("alpha")?;
    map::floats(call, outputs, |x| if x < 0.0 { alpha * x } else { x })
}

fn linear_activation(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (alpha, beta, steps) = (call.float("alpha")?, call.float("beta")?, Steps::of(call)?);
    map::floats(call, outputs, |x| steps.round(alpha * x) + beta)
}

fn scaled_tanh(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (alpha, beta, steps) = (call.float("alpha")?, call.float("beta")?, Steps::of(call)?);
    map::composed(call, outputs, |x| steps.round(beta * x), Unary::Tanh, |_, y| alpha * steps.round(y))
}

fn sigmoid_hard(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (alpha, beta, steps) = (call.float("alpha")?, call.float("beta")?, Steps::of(call)?);
    map::floats(call, outputs, |x| (steps.round(alpha * x) + beta).clamp(0.0, 1.0))
}

fn silu(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let steps = Steps::of(call)?;
    if !steps.any() {
        return map::vectors(call, outputs, Unary::Silu);
    }
    map::composed(call, outputs, |x| x, Unary::Sigmoid, |x, y| x * steps.round(y))
}

fn softsign(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let steps = Steps::of(call)?;
    map::floats(call, outputs, |x| x / steps.round(1.0 + x.abs()))
}

fn thresholded_relu(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let alpha = call.float("alpha")?;
    map::floats(call, outputs, |x| if x < alpha { 0.0 } else { x })
}

/// The formula of `gelu` that `mode` names.
fn gelu_mode(call: &Call<'_>) -> Result<Unary> {
    match call.text("mode")? {
        "EXACT" => Ok(Unary::Gelu),
        "TANH_APPROXIMATION" => Ok(Unary::GeluTanh),
        "SIGMOID_APPROXIMATION" => Ok(Unary::GeluSigmoid),
        other => refuse!("`mode` is \"{other}\", not EXACT, TANH_APPROXIMATION or SIGMOID_APPROXIMATION"),
    }
}

fn infer_gelu(call: &Call<'_>) -> Result<Vec<Type>> {
    gelu_mode(call)?;
    map::same_type(call)
}

fn gelu(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (mode, steps) = (gelu_mode(call)?, Steps::of(call)?);
    match mode {
        _ if !steps.any() => map::vectors(call, outputs, mode),
        Unary::GeluTanh => {
            let argument = |x: f32| {
                let cubed = steps.round(steps.round(x * x) * x);
                let inner = steps.round(x + steps.round(0.044_715 * cubed));
                steps.round((2.0 / std::f32::consts::PI).sqrt() * inner)
            };
            let share = |y: f32| steps.round(1.0 + steps.round(y));
            map::composed(call, outputs, argument, Unary::Tanh, |x, y| 0.5 * x * share(y))
        }
        Unary::GeluSigmoid => {
            let argument = |x: f32| steps.round(1.702 * x);
            map::composed(call, outputs, argument, Unary::Sigmoid, |x, y| x * steps.round(y))
        }
        _ => {
            let argument = |x: f32| -x * std::f32::consts::FRAC_1_SQRT_2;
            map::composed(call, outputs, argument, Unary::Erfc, |x, y| 0.5 * x * steps.round(y))
        }
    }
}

/// `ln(1 + eˣ)` without overflow.
pub(super) fn softplus(x: f32) -> f32 {
    (-x.abs()).exp().ln_1p() + if x < 0.0 { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, constants: &[(&str, f32)], x: &[f32], expected: &[f32]) {
        let mut args = vec![("x", tensor(&[x.len()], x))];
        args.extend(constants.iter().map(|&(param, value)| (param, Tensor::scalar(value))));
        near(name, &run(name, Ios15, &args).unwrap()[0], expected, 1e-6);
    }

    #[test]
    fn formulas_agree_with_numpy() {
        let x = [-2.0, -0.5, 0.0, 1.5, f32::NAN];
        check("clamped_relu", &[("alpha", 2.0), ("beta", 1.0)], &x, &[-4.0, -1.0, 0.0, 1.0, f32::NAN]);
        check("clamped_relu", &[("alpha", 2.0), ("beta", -1.0)], &x[..4], &[-4.0, -1.0, -1.0, -1.0]);
        check("elu", &[("alpha", 2.0)], &x, &[-1.729_329_4, -0.786_938_7, 0.0, 1.5, f32::NAN]);
        check("leaky_relu", &[("alpha", 0.1)], &x, &[-0.2, -0.05, 0.0, 1.5, f32::NAN]);
        check("linear_activation", &[("alpha", 2.0), ("beta", 1.0)], &x[..2], &[-3.0, 0.0]);
        check("relu", &[], &x, &[0.0, 0.0, 0.0, 1.5, f32::NAN]);
        check("relu6", &[], &[7.0, -1.0, 3.0], &[6.0, 0.0, 3.0]);
        check("scaled_tanh", &[("alpha", 2.0), ("beta", 0.5)], &x[..2], &[-1.523_188_3, -0.489_837_3]);
        check("sigmoid", &[], &[-1000.0, -2.0, 1000.0], &[0.0, 0.119_202_92, 1.0]);
        check("sigmoid_hard", &[("alpha", 0.2), ("beta", 0.5)], &[-5.0, 0.5, 9.0], &[0.0, 0.6, 1.0]);
        check("silu", &[], &x[..2], &[-0.238_405_84, -0.188_770_33]);
        check("softplus", &[], &[-1000.0, 0.5, 1000.0], &[0.0, 0.974_077, 1000.0]);
        check("softsign", &[], &x[..2], &[-0.666_666_7, -0.333_333_34]);
        check("thresholded_relu", &[("alpha", 0.5)], &[0.4, 0.5, -1.0], &[0.0, 0.5, 0.0]);
    }

    #[test]
    fn gelu_has_three_modes() {
        let x = tensor(&[3], &[-3.0f32, 0.5, 100.0]);
        for (mode, expected) in [
            ("EXACT", [-0.004_049_694, 0.345_731_23, 100.0]),
            ("TANH_APPROXIMATION", [-0.003_637_392, 0.345_714, 100.0]),
            ("SIGMOID_APPROXIMATION", [-0.018_071_31, 0.350_388_44, 100.0]),
        ] {
            let args = [("x", x.clone()), text("mode", mode)];
            near(mode, &run("gelu", Ios15, &args).unwrap()[0], &expected, 1e-6);
        }
        let args = [("x", x), text("mode", "FAST")];
        refused(
            run("gelu", Ios15, &args),
            "`mode` is \"FAST\", not EXACT, TANH_APPROXIMATION or SIGMOID_APPROXIMATION",
        );
    }

    #[test]
    fn constants_may_be_wider_than_x() {
        let x = tensor(&[1], &[f16::from_f32(-2.0)]);
        let out = run("leaky_relu", Ios17, &[("x", x), ("alpha", Tensor::scalar(0.25f32))]).unwrap();
        assert_eq!(out[0].view().slice::<f16>().unwrap(), [f16::from_f32(-0.5)]);
    }
}
