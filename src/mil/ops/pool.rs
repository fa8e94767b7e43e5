//! `avg_pool`, `max_pool` and `l2_pool` over up to three spatial dimensions.

use super::conv::{PAD, STRIDES};
use super::prelude::*;
use super::windows::{Padding, Windows, in_three, pads, per_axis, spatial_rank};
use anemeter_kernels::floats::{self, Sink};
use anemeter_kernels::parallel::for_each_chunk;
use anemeter_kernels::pool::{Pooling, pool};

pub(super) const OPS: &[OpDef] = &[
    pooling("avg_pool", |call| infer(call, 3), average).takes(&AVERAGE),
    pooling("l2_pool", |call| infer(call, 2), |call, outputs| eval(call, outputs, |_| Pooling::L2)),
    pooling("max_pool", |call| infer(call, 3), |call, outputs| eval(call, outputs, |_| Pooling::Max)),
];

const X: Param = Param::value("x", FLOAT);
const KERNEL_SIZES: Param = Param::constant("kernel_sizes", INT);
const PAD_TYPE: Param = Param::constant("pad_type", TEXT);
const CEIL_MODE: Param = Param::constant("ceil_mode", BOOL).or_bool(false);
const EXCLUDE_PADDING: Param = Param::constant("exclude_padding_from_average", BOOL).or_bool(false);
const AVERAGE: [Param; 7] = [X, KERNEL_SIZES, STRIDES, PAD_TYPE, PAD, CEIL_MODE, EXCLUDE_PADDING];

const fn pooling(name: &'static str, infer: Infer, kernel: Kernel) -> OpDef {
    let params = &[X, KERNEL_SIZES, STRIDES, PAD_TYPE, PAD, CEIL_MODE];
    define(OpClass::Reduction(window_flops), name, Ios15, infer, kernel).takes(params)
}

/// One FLOP per element of each window.
fn window_flops(call: &Call<'_>, out: &[usize]) -> Option<u64> {
    let window = call.ints("kernel_sizes").ok()?;
    Some(window.iter().fold(elements(out), |product, &n| product.saturating_mul(n.unsigned_abs())))
}

fn windows(call: &Call<'_>, spatial: usize) -> Result<Windows> {
    let windows = Windows {
        stride: per_axis(call, "strides", spatial)?,
        dilation: smallvec::smallvec![1; spatial],
        padding: Padding::of(call, spatial)?,
        ceil: call.bool("ceil_mode")?,
    };
    if windows.ceil {
        refuse_if!(spatial > 2, "`ceil_mode` is set, which {spatial} spatial dimensions do not allow");
        if windows.padding == Padding::Same {
            refuse!("`ceil_mode` is set, which `pad_type` `same` does not allow");
        }
        let pad = pads(call, spatial)?;
        if pad.chunks_exact(2).any(|pair| pair[0] != pair[1]) {
            refuse!("`ceil_mode` is set and `pad` is {:?}, which is not symmetric", &pad[..]);
        }
    }
    Ok(windows)
}

fn kernel(call: &Call<'_>, spatial: usize) -> Result<Shape> {
    let sizes = per_axis(call, "kernel_sizes", spatial)?;
    Ok(sizes.iter().map(|&size| usize::try_from(size).unwrap_or(1)).collect())
}

fn infer(call: &Call<'_>, most: usize) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(vec![x.clone().into()]) };
    let spatial = spatial_rank(rank, most)?;
    let kernel: Vec<_> = kernel(call, spatial)?.iter().map(|&size| Dim::from(size)).collect();
    let mut shape = x.shape[..2].to_vec();
    shape.extend(windows(call, spatial)?.output_dims(&x.shape[2..], &kernel)?);
    Ok(dims::one(x.dtype, shape))
}

fn average(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let exclude_padding = call.bool("exclude_padding_from_average")?;
    eval(call, outputs, |padded| Pooling::Average { exclude_padding, padded })
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, pooling: impl Fn([usize; 3]) -> Pooling) -> Result {
    let x = call.tensor("x")?;
    let (out, scratch) = outputs.with_scratch(0)?;
    done_if!(out.shape().contains(&0));
    let spatial = x.rank() - 2;
    let (windows, kernel) = (windows(call, spatial)?, kernel(call, spatial)?);
    let input = &x.shape()[2..];
    let window = windows.window(input, &kernel, &out.shape()[2..]);
    let padded: Shape = (0..spatial)
        .map(|axis| {
            let (before, after) = windows.pad(axis, input[axis], kernel[axis]);
            usize::try_from(input[axis] as i128 + before + after).unwrap_or(0)
        })
        .collect();
    let pooling = pooling(in_three(&padded));
    let round_steps = call.rounds(x.dtype());
    let out_len = out.shape().iter().product();
    let [copy, result] = scratch.floats([floats::scratch_len(&x), out_len]);
    let x = floats::read(&x, copy);
    let work = window.kernel.iter().fold(out_len, |n, &size| n.saturating_mul(size));
    for_each_chunk(result, window.output_len(), work, |plane, out| {
        let input = &x[plane * window.input_len()..][..window.input_len()];
        pool(&window, pooling, input, out, round_steps);
    });
    Sink::new(out)?.write(0, result);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(name: &str, kernel: i32, stride: i32, more: &[(&str, Tensor)]) -> Result<Vec<f32>> {
        let x = tensor(&[1, 1, 6], &[1.0f32, 2.0, 3.0, 4.0, 5.0, -6.0]);
        let own = [("x", x), ("kernel_sizes", ints(&[kernel])), ("strides", ints(&[stride]))];
        let out = run(name, Ios16, &[&own, more].concat())?;
        Ok(out[0].view().slice::<f32>()?.to_vec())
    }

    #[test]
    fn padding_never_wins_and_counts_only_if_included() {
        let pad_type = |text| ("pad_type", Tensor::from_text(text));
        let set = |name| (name, Tensor::from_bool(true));
        let custom = [pad_type("custom"), ("pad", ints(&[1, 1]))];
        let exclude = set("exclude_padding_from_average");
        for (name, kernel, stride, more, expected) in [
            ("max_pool", 3, 3, vec![pad_type("valid")], vec![3.0, 5.0]),
            ("max_pool", 2, 5, vec![pad_type("same")], vec![2.0, -6.0]),
            ("max_pool", 2, 1, vec![pad_type("same_lower")], vec![1.0, 2.0, 3.0, 4.0, 5.0, 5.0]),
            ("avg_pool", 3, 2, custom.to_vec(), vec![1.0, 3.0, 1.0]),
            ("avg_pool", 3, 2, [custom.to_vec(), vec![exclude.clone()]].concat(), vec![1.5, 3.0, 1.0]),
            // The last window starts at 4 and ends beyond the input: only what exists counts.
            ("avg_pool", 3, 4, vec![pad_type("valid"), set("ceil_mode")], vec![2.0, -0.5]),
            // The last window would start in the padding after the input.
            ("avg_pool", 2, 7, [custom.to_vec(), vec![set("ceil_mode")]].concat(), vec![0.5]),
            ("l2_pool", 2, 4, vec![pad_type("valid")], vec![5.0f32.sqrt(), 61.0f32.sqrt()]),
        ] {
            let more_text = format!("{name} {kernel} {stride} {more:?}");
            assert_eq!(pooled(name, kernel, stride, &more).unwrap(), expected, "{more_text}");
        }
    }

    #[test]
    fn planes_have_up_to_three_dimensions() {
        let values: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let args = [
            ("x", tensor(&[1, 2, 2, 2, 2], &values)),
            ("kernel_sizes", ints(&[2, 1, 2])),
            ("pad_type", Tensor::from_text("valid")),
        ];
        gives::<f32>(run("max_pool", Ios15, &args), &[1, 2, 1, 2, 1], &[5.0, 7.0, 13.0, 15.0]);
    }

    #[test]
    fn fp16_exact_rounds_every_sum() {
        let values = [2048.0, 1.0, 1.0, 2.0].map(f16::from_f32);
        let args = [
            ("x", tensor(&[1, 1, 4], &values).into()),
            ("kernel_sizes", ints(&[4]).into()),
            ("pad_type", Tensor::from_text("valid").into()),
        ];
        let value = |numerics| call("avg_pool", numerics, &args).unwrap().view().slice::<f16>().unwrap()[0];
        assert_eq!(value(Numerics::Fast).to_f32(), 513.0);
        assert_eq!(value(Numerics::Fp16Exact).to_f32(), 512.5);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let same = ("pad_type", Tensor::from_text("same"));
        let ceil = ("ceil_mode", Tensor::from_bool(true));
        let error = pooled("max_pool", 2, 1, &[same.clone(), ceil]).unwrap_err();
        assert_eq!(error.to_string(), "`ceil_mode` is set, which `pad_type` `same` does not allow");
        refused(pooled("max_pool", 0, 1, &[same]), "`kernel_sizes` holds 0, which is not positive");
        refused(
            pooled("max_pool", 7, 1, &[("pad_type", Tensor::from_text("valid"))]),
            "spatial dimension 0 of size 6 with padding 0 and a window of 7 gives an output of size 0",
        );
    }
}
