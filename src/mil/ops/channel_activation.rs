//! Activations whose constants differ per channel, the second dimension of `x`.

use super::activation::softplus;
use super::map::{self, Steps};
use super::prelude::*;
use super::{channels, in_place};
use anemeter_kernels::convert::to_f32;

pub(super) const OPS: &[OpDef] =
    &[
        define(OpClass::Elementwise, "prelu", Ios15, infer_prelu, prelu).takes(&[X, ALPHA.group('T')]),
        define(OpClass::Elementwise, "prelu", Ios17, infer_prelu, prelu).takes(&[X, ALPHA.group('U')]),
        define(OpClass::Elementwise, "softplus_parametric", Ios15, infer_softplus, softplus_parametric)
            .takes(&[X, ALPHA.group('T'), BETA.group('T')]),
        define(OpClass::Elementwise, "softplus_parametric", Ios17, infer_softplus, softplus_parametric)
            .takes(&[X, ALPHA.group('U'), BETA.group('U')]),
    ];

const X: Param = Param::value("x", FLOAT).group('T');
const ALPHA: Param = Param::constant("alpha", FLOAT);
const BETA: Param = Param::constant("beta", FLOAT);

fn infer_prelu(call: &Call<'_>) -> Result<Vec<Type>> {
    /// Slopes that differ by no more count as equal.
    const EQUAL: f32 = 1e-5;

    let x = call.ty("x")?;
    channels::check_rank(x, 3..=5)?;
    channels::check(call, x, &["alpha"])?;
    if let (Some(rank @ (3 | 5)), Some(alpha)) = (x.rank(), call.known("alpha")) {
        let slope = |i: usize| {
            let mut value = [0.0];
            to_f32(&alpha, i..i + 1, &mut value);
            value[0]
        };
        if let Some(i) = (1..alpha.len()).find(|&i| (slope(i) - slope(0)).abs() > EQUAL) {
            refuse!(
                "`alpha` {i} is {}, which differs from {} at 0: with `x` of rank {rank} all must be equal",
                slope(i),
                slope(0)
            );
        }
    }
    map::same_type(call)
}

fn prelu(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let shape = call.tensor("x")?.shape();
    in_place::run(call, outputs, shape[1], |data, alpha| {
        in_place::constant(call, "alpha", alpha)?;
        each_channel(shape, data, |channel, x| if x < 0.0 { alpha[channel] * x } else { x });
        Ok(())
    })
}

fn infer_softplus(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    channels::check_rank(x, 3..=5)?;
    channels::check(call, x, &["alpha", "beta"])?;
    map::same_type(call)
}

fn softplus_parametric(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let shape = call.tensor("x")?.shape();
    let steps = Steps::of(call)?;
    in_place::run(call, outputs, 2 * shape[1], |data, constants| {
        let (alpha, beta) = constants.split_at_mut(shape[1]);
        in_place::constant(call, "alpha", alpha)?;
        in_place::constant(call, "beta", beta)?;
        each_channel(shape, data, |channel, x| {
            alpha[channel] * steps.round(softplus(steps.round(beta[channel] * x)))
        });
        Ok(())
    })
}

/// Applies `f(channel, element)` to `[batch, channel, ...]` data.
fn each_channel(shape: &[usize], data: &mut [f32], f: impl Fn(usize, f32) -> f32) {
    let inner = shape[2..].iter().product::<usize>().max(1);
    for (i, run) in data.chunks_mut(inner).enumerate() {
        for value in run {
            *value = f(i % shape[1], *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_its_slope() {
        let x = floats(&[1, 2, 1, 2], &[-1.0, 2.0, -3.0, 4.0]);
        let out = run("prelu", Ios15, &[("x", x), ("alpha", floats(&[2], &[0.5, 2.0]))]).unwrap();
        assert_eq!(out[0].view().slice::<f32>().unwrap(), [-0.5, 2.0, -6.0, 4.0]);
    }

    #[test]
    fn softplus_is_scaled_per_channel() {
        let x = floats(&[1, 2, 1], &[1.0, 1000.0]);
        let args = [("x", x), ("alpha", floats(&[2], &[2.0, 3.0])), ("beta", floats(&[2], &[0.5, 1.0]))];
        let out = run("softplus_parametric", Ios17, &args).unwrap();
        let out = out[0].view().slice::<f32>().unwrap();
        assert!((out[0] - 1.948_154).abs() < 1e-6);
        assert_eq!(out[1], 3000.0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (x, alpha, expected) in [
            (
                vec![1, 2, 1],
                vec![0.1, 0.2],
                "`alpha` 1 is 0.2, which differs from 0.1 at 0: with `x` of rank 3 all must be equal",
            ),
            (vec![1, 2, 1, 1], vec![0.1], "`alpha` has 1 elements for 2 channels"),
            (vec![1, 2], vec![0.1, 0.1], "`x` has rank 2, outside 3 to 5"),
        ] {
            let args = [("x", floats(&x, &[1.0, 1.0])), ("alpha", floats(&[alpha.len()], &alpha))];
            refused(run("prelu", Ios15, &args), expected);
        }
    }
}
