//! Normalisation: over batches, instances, layers, channels, or by length.

use super::map;
use super::prelude::*;
use super::{axes, channels, in_place};
use crate::op::NORM_FLOPS;
use anemeter_kernels::norm::{
    self, Affine, AffineIndex, ChannelStatistics, LocalResponse, local_response_norm, standardize,
};
use anemeter_kernels::reduce::Axes;

pub(super) const OPS: &[OpDef] = &[
    norm("batch_norm", Ios15, infer_batch_norm, batch_norm).takes(&batch_norm_params('T')),
    norm("batch_norm", Ios17, infer_batch_norm, batch_norm).takes(&batch_norm_params('U')),
    norm("instance_norm", Ios15, infer_instance_norm, instance_norm).takes(&instance_norm_params('T')),
    norm("instance_norm", Ios17, infer_instance_norm, instance_norm).takes(&instance_norm_params('U')),
    norm("l2_norm", Ios15, infer_l2_norm, l2_norm).takes(&[X, epsilon('T', 1e-6)]),
    norm("l2_norm", Ios17, infer_l2_norm, l2_norm).takes(&[X, epsilon('U', 1e-6)]),
    norm("layer_norm", Ios15, infer_layer_norm, layer_norm).takes(&layer_norm_params('T')),
    norm("layer_norm", Ios17, infer_layer_norm, layer_norm).takes(&layer_norm_params('U')),
    norm("local_response_norm", Ios15, infer_local, local).takes(&local_params('T')),
    norm("local_response_norm", Ios17, infer_local, local).takes(&local_params('U')),
];

const fn norm(name: &'static str, since: Opset, infer: Infer, kernel: Kernel) -> OpDef {
    define(OpClass::Reduction(per_element::<NORM_FLOPS>), name, since, infer, kernel)
}

const X: Param = Param::value("x", FLOAT).group('T');

const fn epsilon(group: char, default: f32) -> Param {
    Param::constant("epsilon", FLOAT).group(group).or_float(default)
}

const fn gamma(group: char) -> Param {
    Param::constant("gamma", FLOAT).group(group).optional()
}

const fn beta(group: char) -> Param {
    Param::constant("beta", FLOAT).group(group).optional()
}

const fn batch_norm_params(group: char) -> [Param; 6] {
    let mean = Param::constant("mean", FLOAT).group(group);
    let variance = Param::constant("variance", FLOAT).group(group);
    [X, mean, variance, gamma(group), beta(group), epsilon(group, 1e-5)]
}

const fn instance_norm_params(group: char) -> [Param; 4] {
    [X, gamma(group), beta(group), epsilon(group, 1e-5)]
}

const fn layer_norm_params(group: char) -> [Param; 5] {
    let axes = Param::constant("axes", INT).optional();
    [X, axes, gamma(group), beta(group), epsilon(group, 1e-5)]
}

const fn local_params(group: char) -> [Param; 5] {
    let alpha = Param::constant("alpha", FLOAT).group(group).or_float(1e-4);
    let beta = Param::constant("beta", FLOAT).group(group).or_float(0.75);
    let k = Param::constant("k", FLOAT).group(group).or_float(1.0);
    [X, Param::constant("size", INT), alpha, beta, k]
}

fn infer_batch_norm(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    channels::check_rank(x, 3..=5)?;
    channels::check(call, x, &["mean", "variance", "gamma", "beta"])?;
    map::same_type_given(call, &["epsilon"])
}

fn batch_norm(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let (channels, inner) = (x.shape()[1], x.shape()[2..].iter().product());
    let epsilon = call.float("epsilon")?;
    in_place::run(call, outputs, 4 * channels, |data, memory| {
        let (mean, memory) = memory.split_at_mut(channels);
        let (variance, memory) = memory.split_at_mut(channels);
        in_place::constant(call, "mean", mean)?;
        in_place::constant(call, "variance", variance)?;
        let statistics = ChannelStatistics { mean, variance, epsilon };
        norm::batch_norm(data, inner, statistics, affine(call, memory)?, call.rounds(x.dtype()));
        Ok(())
    })
}

/// `gamma` and `beta`, in two halves of `memory`.
fn affine<'m>(call: &Call<'_>, memory: &'m mut [f32]) -> Result<Affine<'m>> {
    let (gamma, beta) = memory.split_at_mut(memory.len() / 2);
    Ok(Affine {
        gamma: in_place::constant(call, "gamma", gamma)?,
        beta: in_place::constant(call, "beta", beta)?,
    })
}

fn infer_instance_norm(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    channels::check_rank(x, 3..=5)?;
    channels::check(call, x, &["gamma", "beta"])?;
    map::same_type_given(call, &["epsilon"])
}

fn instance_norm(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let shape = call.tensor("x")?.shape();
    let axes = Axes::new(shape, |axis| axis >= 2);
    apply_standardize(call, outputs, &axes, (shape[1], AffineIndex::Channel(shape[1])))
}

/// The last dimensions, over which `l2_norm` takes the length.
const L2_DIMS: usize = 3;

fn infer_l2_norm(call: &Call<'_>) -> Result<Vec<Type>> {
    if let Some(rank) = call.ty("x")?.rank().filter(|&rank| rank < L2_DIMS) {
        refuse!("`x` has rank {rank}, below {L2_DIMS}");
    }
    map::same_type_given(call, &["epsilon"])
}

fn l2_norm(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let axes = Axes::new(x.shape(), |axis| axis + L2_DIMS >= x.rank());
    let epsilon = call.float("epsilon")?;
    in_place::run(call, outputs, 2 * axes.kept(), |data, sums| {
        norm::l2_norm(&axes, data, bytemuck::cast_slice_mut(sums), epsilon, call.rounds(x.dtype()));
        Ok(())
    })
}

fn infer_layer_norm(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    if let Some(rank) = x.rank() {
        let named = axes::named(call, rank)?;
        let normalized: Vec<Dim> =
            x.shape.iter().zip(&named).filter(|&(_, &named)| named).map(|(&dim, _)| dim).collect();
        for name in ["gamma", "beta"] {
            let Some(given) = call.opt_ty(name)? else { continue };
            let fits = |(a, b): (&Dim, &Dim)| a.size().is_none() || b.size().is_none() || a == b;
            let compatible =
                given.shape.len() == normalized.len() && given.shape.iter().zip(&normalized).all(fits);
            refuse_if!(
                given.rank().is_some() && !compatible,
                "`{name}` is a {given}, which does not cover the {} normalized dimensions of {x}",
                normalized.len()
            );
        }
    }
    map::same_type_given(call, &["epsilon"])
}

fn layer_norm(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let named = axes::named(call, x.rank())?;
    let axes = Axes::new(x.shape(), |axis| named[axis]);
    apply_standardize(call, outputs, &axes, (axes.reduced(), AffineIndex::Reduced))
}

/// Standardizes `x` with `gamma` and `beta` of the given length.
fn apply_standardize(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    axes: &Axes,
    (affine_len, index): (usize, AffineIndex),
) -> Result {
    let epsilon = call.float("epsilon")?;
    let rounds = call.rounds(call.ty("x")?.dtype);
    in_place::run(call, outputs, 4 * axes.kept() + 2 * affine_len, |data, memory| {
        let (statistics, memory) = memory.split_at_mut(4 * axes.kept());
        let statistics = bytemuck::cast_slice_mut(statistics);
        standardize(axes, data, statistics, epsilon, (affine(call, memory)?, index), rounds);
        Ok(())
    })
}

fn infer_local(call: &Call<'_>) -> Result<Vec<Type>> {
    channels::check_rank(call.ty("x")?, 3..=5)?;
    let size = call.int("size")?;
    refuse_if!(size < 1, "`size` is {size}, which is no neighbourhood");
    map::same_type_given(call, &["alpha", "beta", "k"])
}

fn local(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let (channels, inner) = local_extents(x.shape());
    let constants = LocalResponse {
        size: usize::try_from(call.int("size")?).unwrap_or(1),
        alpha: call.float("alpha")?,
        beta: call.float("beta")?,
        k: call.float("k")?,
    };
    in_place::run(call, outputs, x.len(), |data, before| {
        before.copy_from_slice(data);
        local_response_norm(before, data, channels, inner, constants, call.rounds(x.dtype()));
        Ok(())
    })
}

/// How many channels there are and how many elements each holds. Core ML takes an `x` of rank 3 for
/// `[channel, height, width]`, not for `[batch, channel, width]`.
fn local_extents(shape: &[usize]) -> (usize, usize) {
    let channel_axis = if shape.len() == 3 { 0 } else { 1 };
    (shape[channel_axis], shape[channel_axis + 1..].iter().product())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, args: &[(&str, Tensor)], expected: &[f32]) {
        near(name, &run(name, Ios17, args).unwrap()[0], expected, 1e-5);
    }

    #[test]
    fn batch_norm_uses_the_statistics_of_each_channel() {
        let x = floats(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let args = [
            ("x", x),
            ("mean", floats(&[2], &[1.0, 2.0])),
            ("variance", floats(&[2], &[3.0, 8.0])),
            ("gamma", floats(&[2], &[2.0, 3.0])),
            ("beta", floats(&[2], &[0.5, 0.0])),
            ("epsilon", Tensor::scalar(1.0f32)),
        ];
        check("batch_norm", &args, &[0.5, 1.5, 1.0, 2.0]);
        check("batch_norm", &args[..3], &[0.0, 0.577_349_3, 0.353_553_2, 0.707_106_3]);
    }

    #[test]
    fn instances_and_layers_are_standardized() {
        let x = floats(&[1, 2, 2], &[1.0, 3.0, 0.0, 10.0]);
        let args =
            [("x", x.clone()), ("gamma", floats(&[2], &[1.0, 2.0])), ("beta", floats(&[2], &[0.0, 1.0]))];
        check("instance_norm", &args, &[-0.999_995, 0.999_995, -1.0, 3.0]);
        let axes = ("axes", tensor(&[1], &[1i32]));
        let gamma = ("gamma", floats(&[2], &[1.0, 2.0]));
        check("layer_norm", &[("x", x.clone()), axes, gamma], &[0.999_98, -1.0, -1.999_96, 2.0]);
        check("layer_norm", &[("x", x)], &[-0.640_184_2, -0.128_036_84, -0.896_257_9, 1.664_478_9]);
    }

    #[test]
    fn length_is_taken_over_the_last_three_dimensions() {
        let x = floats(&[2, 1, 1, 2], &[3.0, 4.0, 0.0, 0.0]);
        let epsilon = ("epsilon", Tensor::scalar(0.5f32));
        check("l2_norm", &[("x", x), epsilon], &[0.594_088_5, 0.792_118, 0.0, 0.0]);
    }

    #[test]
    fn neighbouring_channels_damp_each_other() {
        let values = [1.0, -7.0, 5.0, -6.0, -3.0, -5.0];
        let size = ("size", Tensor::scalar(3i32));
        let x = ("x", floats(&[1, 3, 1, 2], &values));
        let expected = [0.999_350_5, -6.985_162, 4.995_629_5, -5.983_553, -2.997_452_5, -4.992_388_5];
        check("local_response_norm", &[x, size.clone()], &expected);
        let x = ("x", floats(&[1, 3, 2], &values));
        let expected = [0.999_975, -6.991_437, 4.996_876_7, -5.994_606, -2.999_325, -4.996_876_7];
        check("local_response_norm", &[x, size], &expected);
    }

    #[test]
    fn parameters_may_be_of_another_type_than_x() {
        let x = tensor(&[1, 2], &[f16::ONE, f16::NEG_ONE]);
        let axes = ("axes", tensor(&[1], &[-1i32]));
        let args = [("x", x), axes, ("epsilon", Tensor::scalar(3.0f32)), ("beta", floats(&[2], &[0.5, 0.0]))];
        assert_eq!(output::<f16>(run("layer_norm", Ios17, &args)), [1.0, -0.5].map(f16::from_f32));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let x = ("x", floats(&[1, 2, 2], &[0.0; 4]));
        let axes = ("axes", tensor(&[1], &[2i32]));
        let (beta, size) = (("beta", floats(&[3], &[1.0; 3])), ("size", Tensor::scalar(0i32)));
        for (name, args, expected) in [
            (
                "layer_norm",
                vec![x.clone(), axes, ("gamma", floats(&[3], &[1.0; 3]))],
                "`gamma` is a tensor<fp32, [3]>, which does not cover the 1 normalized dimensions of tensor<fp32, [1, 2, 2]>",
            ),
            ("instance_norm", vec![x.clone(), beta], "`beta` has 3 elements for 2 channels"),
            ("l2_norm", vec![("x", floats(&[1], &[0.0]))], "`x` has rank 1, below 3"),
            ("local_response_norm", vec![x, size], "`size` is 0, which is no neighbourhood"),
        ] {
            refused(run(name, Ios15, &args), expected);
        }
    }
}
