//! `conv` and `conv_quantized` over one to three spatial dimensions.

use super::convolution::{Convolution, Filter};
use super::prelude::*;
use super::windows::{Padding, Windows, per_axis, spatial_rank};
use anemeter_kernels::floats::Sink;

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Product(flops), "conv", Ios15, infer, eval_conv)
        .takes(&params('T', Param::constant("bias", FLOAT))),
    define(OpClass::Product(flops), "conv", Ios17, infer, eval_conv)
        .takes(&params('U', Param::value("bias", FLOAT))),
    define(OpClass::Product(flops), "conv_quantized", Ios15, infer_quantized, eval_quantized).takes(&[
        Param::value("x", FLOAT).group('T'),
        Param::value("weight", &[DType::U8]).group('U').packed(),
        Param::constant("bias", &[DType::U8]).group('U').optional().packed(),
        Param::constant("quantization_type", TEXT),
        Param::constant("nbits", INT).or_int(8),
        Param::constant("quant_scale", FLOAT).group('T'),
        Param::constant("quant_bias", FLOAT).group('T'),
        STRIDES,
        PAD_TYPE,
        PAD,
        DILATIONS,
        GROUPS,
    ]),
];

const fn params(group: char, bias: Param) -> [Param; 8] {
    let weight = Param::value("weight", FLOAT).group(group).packed().weight(WeightAxes::OutputInput);
    let bias = bias.group(group).optional().packed();
    [Param::value("x", FLOAT).group('T'), weight, bias, STRIDES, PAD_TYPE, PAD, DILATIONS, GROUPS]
}

/// Each element of the result is a sum over one filter.
fn flops(call: &Call<'_>, out: &[usize]) -> Option<u64> {
    let weight = call.ty("weight").ok()?.concrete()?;
    Some(products(call, out, elements(out).saturating_mul(elements(weight.get(1..)?))))
}

pub(super) const STRIDES: Param = Param::constant("strides", INT).optional();
pub(super) const PAD_TYPE: Param = Param::constant("pad_type", TEXT).or_text("valid");
pub(super) const PAD: Param = Param::constant("pad", INT).optional();
pub(super) const DILATIONS: Param = Param::constant("dilations", INT).optional();
pub(super) const GROUPS: Param = Param::constant("groups", INT).or_int(1);

/// The `groups` parameter, which must divide the channels of the input where they are known.
pub(super) fn groups(call: &Call<'_>, channels: Dim) -> Result<usize> {
    let groups = call.int("groups")?;
    let count = usize::try_from(groups).unwrap_or(0);
    refuse_if!(count == 0, "`groups` is {groups}, which is not positive");
    match channels.size() {
        Some(channels) if channels % count != 0 => {
            refuse!("{channels} input channels are not divisible by {count} groups")
        }
        _ => Ok(count),
    }
}

/// Checks that a bias has one element per output channel.
pub(super) fn check_bias(call: &Call<'_>, channels: Dim) -> Result {
    let Some(bias) = call.opt_ty("bias")? else { return Ok(()) };
    match (&bias.shape[..], channels) {
        ([Dim::Fixed(found)], Dim::Fixed(wanted)) if *found != wanted => {
            refuse!("`bias` has {found} elements for {wanted} output channels")
        }
        ([_], _) => Ok(()),
        _ => refuse!("`bias` is a {bias}, not a vector"),
    }
}

fn windows(call: &Call<'_>, spatial: usize) -> Result<Windows> {
    Ok(Windows {
        stride: per_axis(call, "strides", spatial)?,
        dilation: per_axis(call, "dilations", spatial)?,
        padding: Padding::of(call, spatial)?,
        ceil: false,
    })
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, weight) = (call.ty("x")?, call.ty("weight")?);
    let (Some(rank), Some(weight_rank)) = (x.rank(), weight.rank()) else {
        return Ok(dims::unranked(x.dtype));
    };
    let windows = windows(call, spatial_rank(rank, 3)?)?;
    refuse_if!(weight_rank != rank, "`weight` has rank {weight_rank}, `x` has rank {rank}");
    let groups = groups(call, x.shape[1])?;
    let (inputs, outputs) = (weight.shape[1], weight.shape[0]);
    if let (Some(found), Some(channels)) = (inputs.size(), x.shape[1].size())
        && found != channels / groups
    {
        refuse!("`weight` takes {found} channels per group, `x` has {channels} in {groups} groups");
    }
    if outputs.size().is_some_and(|outputs| outputs % groups != 0) {
        refuse!("{outputs} output channels are not divisible by {groups} groups");
    }
    check_bias(call, outputs)?;
    check_kernel(weight)?;
    let mut shape = vec![x.shape[0], outputs];
    shape.extend(windows.output_dims(&x.shape[2..], &weight.shape[2..])?);
    Ok(dims::one(x.dtype, shape))
}

/// Checks that a weight `[_, _, *kernel]` has no empty kernel.
pub(super) fn check_kernel(weight: &TensorType) -> Result {
    match weight.shape[2..].contains(&Dim::Fixed(0)) {
        true => refuse!("`weight` is a {weight}, whose kernel is empty"),
        false => Ok(()),
    }
}

fn infer_quantized(call: &Call<'_>) -> Result<Vec<Type>> {
    let kind = call.text("quantization_type")?;
    if !kind.eq_ignore_ascii_case("linear") {
        refuse!("`quantization_type` is `{kind}`; only `linear` can be told from the other parameters");
    }
    let bits = call.int("nbits")?;
    refuse_if!(!(1..=8).contains(&bits), "`nbits` is {bits}, not one of 1 to 8");
    let channels = call.ty("weight")?.shape.first().and_then(|d| d.size());
    for name in ["quant_scale", "quant_bias"] {
        let elements = call.tensor(name)?.len();
        if elements != 1 && channels.is_some_and(|channels| channels != elements) {
            refuse!("`{name}` has {elements} elements, not one or one per output channel");
        }
    }
    infer(call)
}

fn eval_conv(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    eval(call, outputs, None)
}

fn eval_quantized(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    eval(call, outputs, Some([call.tensor("quant_scale")?, call.tensor("quant_bias")?]))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, quantization: Option<[TensorView<'_>; 2]>) -> Result {
    let (x, weight) = (call.tensor("x")?, call.weight("weight")?);
    let (out, scratch) = outputs.with_scratch(0)?;
    done_if!(out.shape().contains(&0));
    let windows = windows(call, x.rank() - 2)?;
    let window = windows.window(&x.shape()[2..], &weight.shape()[2..], &out.shape()[2..]);
    let groups = groups(call, Dim::from(x.shape()[1]))?;
    let row = weight.shape()[1..].iter().product();
    let convolution = Convolution {
        filter: Filter { weight, row, quantization },
        bias: if call.has("bias") { Some(call.weight("bias")?) } else { None },
        window,
        groups,
        batch: x.shape()[0],
        inputs: x.shape()[1] / groups,
        outputs: weight.shape()[0] / groups,
        round_steps: call.rounds(x.dtype()),
    };
    convolution.evaluate(&x, scratch, &mut Sink::new(out)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Eval, decode_all};

    fn counting(shape: &[usize]) -> Tensor {
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|i: usize| (i * 5 % 13) as f32 - 6.0).collect();
        floats(shape, &values)
    }

    #[test]
    fn pad_types_place_the_window() {
        let x = floats(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
        let weight = floats(&[1, 1, 2], &[1.0, 10.0]);
        let (pad, one) = (ints(&[1, 2]), ints(&[1]));
        for (pad_type, strides, dilations, expected) in [
            ("valid", &one, &one, &[21.0, 32.0, 43.0][..]),
            ("valid", &ints(&[2]), &one, &[21.0, 43.0]),
            ("valid", &one, &ints(&[3]), &[41.0]),
            ("same", &one, &one, &[21.0, 32.0, 43.0, 4.0]),
            ("same_lower", &one, &one, &[10.0, 21.0, 32.0, 43.0]),
            ("custom", &one, &one, &[10.0, 21.0, 32.0, 43.0, 4.0, 0.0]),
            ("custom", &ints(&[2]), &ints(&[2]), &[20.0, 42.0, 4.0]),
        ] {
            let args = [
                ("x", x.clone()),
                ("weight", weight.clone()),
                text("pad_type", pad_type),
                ("pad", pad.clone()),
                ("strides", strides.clone()),
                ("dilations", dilations.clone()),
            ];
            assert_eq!(output::<f32>(run("conv", Ios16, &args)), expected, "{pad_type}");
        }
    }

    /// The definition, for stride 1 and no padding.
    fn defined(x: &Tensor, weight: &Tensor, groups: usize) -> Vec<f32> {
        let (&[n, channels, height, width], &[outputs, inputs, kh, kw]) = (x.shape(), weight.shape()) else {
            panic!("two spatial dimensions");
        };
        let (view, filter) = (x.view(), weight.view());
        let (x, w) = (view.slice::<f32>().unwrap(), filter.slice::<f32>().unwrap());
        let (oh, ow) = (height - kh + 1, width - kw + 1);
        let mut out = Vec::new();
        for (item, o) in (0..n).flat_map(|item| (0..outputs).map(move |o| (item, o))) {
            for (y, column) in (0..oh).flat_map(|y| (0..ow).map(move |column| (y, column))) {
                let first = o / (outputs / groups) * inputs;
                out.push((0..inputs * kh * kw).fold(0.0, |sum, at| {
                    let (c, ky, kx) = (at / (kh * kw), at / kw % kh, at % kw);
                    let plane = (item * channels + first + c) * height;
                    sum + x[(plane + y + ky) * width + column + kx] * w[o * inputs * kh * kw + at]
                }));
            }
        }
        out
    }

    #[test]
    fn every_way_of_computing_gives_the_definition() {
        for (name, x, weight, groups) in [
            ("depthwise", [2, 4, 5, 6], [8, 1, 3, 2], 4),
            ("one position", [3, 6, 2, 2], [40, 3, 2, 2], 2),
            ("one pointwise position", [2, 64, 1, 1], [600, 64, 1, 1], 1),
            ("pointwise", [2, 6, 9, 7], [10, 3, 1, 1], 2),
            ("unfolded", [2, 6, 9, 7], [10, 3, 3, 2], 2),
            ("several blocks", [1, 64, 40, 40], [8, 64, 5, 5], 1),
        ] {
            let (x, weight) = (counting(&x), counting(&weight));
            let expected = defined(&x, &weight, groups);
            let groups = Tensor::scalar(i32::try_from(groups).unwrap());
            let args = [("x", x.into()), ("weight", compressed(weight)), ("groups", groups.into())];
            let out = call("conv", Numerics::Fast, &args).unwrap();
            assert_eq!(out.view().slice::<f32>().unwrap(), expected, "{name}");
        }
    }

    /// A compressed weight as a program makes it.
    fn constexpr(name: &str, args: &[(&str, Tensor)]) -> KnownValue {
        let def = definition(name, Ios18);
        let arguments = arguments(def, args);
        let Eval::Constexpr(decode) = def.eval else { panic!("`{name}` makes no weights") };
        KnownValue::Packed(decode(&Call::new(def, Ios18, 1, &arguments)).unwrap().remove(0))
    }

    #[test]
    fn compressed_weights_give_what_their_expansion_gives() {
        let halves = |shape: &[usize], value: &dyn Fn(usize) -> f32| {
            halves(shape, &(0..shape.iter().product()).map(value).collect::<Vec<_>>())
        };
        let packed = |dtype: DType, count: usize| {
            let codes = (0..count).map(|i| (i * 37 % 251) as u8);
            let bytes = anemeter_kernels::tensor::packed::pack(codes, dtype.bits());
            Tensor::new(dtype, [24, 64, 1, 1].as_slice().into(), bytes.into()).unwrap()
        };
        let scale = |shape: &[usize]| halves(shape, &|i| 0.01 + (i % 7) as f32 / 300.0);
        let blockwise = "constexpr_blockwise_shift_scale";
        let data = |dtype| ("data", packed(dtype, 24 * 64));
        let lut = |tables: usize| halves(&[tables, 1, 1, 1, 16, 1], &|i| (i * 29 % 31) as f32 / 16.0 - 1.0);
        for weight in [
            constexpr(blockwise, &[data(DType::I8), ("scale", scale(&[24, 1, 1, 1]))]),
            constexpr(
                "constexpr_affine_dequantize",
                &[
                    ("quantized_data", packed(DType::I8, 24 * 64)),
                    ("zero_point", Tensor::scalar(0i8)),
                    ("scale", scale(&[24])),
                    ("axis", Tensor::scalar(0i32)),
                ],
            ),
            constexpr(blockwise, &[data(DType::I4), ("scale", scale(&[24, 2, 1, 1]))]),
            constexpr(blockwise, &[data(DType::U4), ("scale", scale(&[24, 2, 1, 1]))]),
            constexpr("constexpr_lut_to_dense", &[("indices", packed(DType::U4, 24 * 64)), ("lut", lut(1))]),
            constexpr("constexpr_lut_to_dense", &[("indices", packed(DType::U4, 24 * 64)), ("lut", lut(4))]),
            constexpr(
                "constexpr_lut_to_dense",
                &[
                    ("indices", packed(DType::U6, 24 * 64)),
                    ("lut", halves(&[1, 1, 1, 1, 64, 1], &|i| i as f32 / 64.0)),
                ],
            ),
        ] {
            let KnownValue::Packed(compressed) = &weight else { unreachable!("made so") };
            let plain = KnownValue::Tensor(decode_all(&**compressed).unwrap());
            for positions in [1, 3, 40] {
                let x = halves(&[1, 64, 1, positions], &|i| (i * 11 % 23) as f32 / 23.0 - 0.5);
                let bias = halves(&[24], &|i| i as f32 / 8.0);
                let run = |weight: &KnownValue| {
                    let args =
                        [("x", x.clone().into()), ("weight", weight.clone()), ("bias", bias.clone().into())];
                    call("conv", Numerics::Fast, &args).unwrap()
                };
                let (found, expected) = (run(&weight), run(&plain));
                let pairs =
                    found.view().slice::<f16>().unwrap().iter().zip(expected.view().slice::<f16>().unwrap());
                for (found, expected) in pairs {
                    // Expansion rounds each of 64 weights below 2.6; what is stored is rounded in both.
                    let bound = 64.0 * 0.5 * 2.6 / 4096.0 + expected.to_f32().abs() / 1024.0;
                    assert!((found.to_f32() - expected.to_f32()).abs() <= bound, "{found} is not {expected}");
                }
            }
        }
    }

    #[test]
    fn compressed_weights_are_multiplied_in_fp32_where_activations_are_fp32() {
        let floats = |shape: &[usize], value: &dyn Fn(usize) -> f32| {
            let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
            Tensor::from_slice(shape, &values).unwrap()
        };
        let codes = anemeter_kernels::tensor::packed::pack((0..24 * 64).map(|i| (i * 37 % 251) as u8), 4);
        let codes =
            |dtype| Tensor::new(dtype, [24, 64, 1, 1].as_slice().into(), codes.clone().into()).unwrap();
        let scale = floats(&[24, 2, 1, 1], &|i| 0.01 + (i % 7) as f32 / 300.0);
        let lut = floats(&[4, 1, 1, 1, 16, 1], &|i| (i * 29 % 31) as f32 / 16.0 - 1.0);
        for weight in [
            constexpr("constexpr_blockwise_shift_scale", &[("data", codes(DType::I4)), ("scale", scale)]),
            constexpr("constexpr_lut_to_dense", &[("indices", codes(DType::U4)), ("lut", lut)]),
        ] {
            let KnownValue::Packed(compressed) = &weight else { unreachable!("made so") };
            let plain = KnownValue::Tensor(decode_all(&**compressed).unwrap());
            for positions in [1, 3] {
                // Of such different sizes that 15 bits in a block do not hold the small ones.
                let x =
                    floats(&[1, 64, 1, positions], &|i| if i % 9 == 0 { 100.0 } else { 0.001 * i as f32 });
                let run = |weight: &KnownValue| {
                    let args = [("x", x.clone().into()), ("weight", weight.clone())];
                    call("conv", Numerics::Fast, &args).unwrap()
                };
                let (found, expected) = (run(&weight), run(&plain));
                let pairs =
                    found.view().slice::<f32>().unwrap().iter().zip(expected.view().slice::<f32>().unwrap());
                for (found, expected) in pairs {
                    assert!((found - expected).abs() <= 1e-4, "{found} is not {expected}");
                }
            }
        }
    }

    #[test]
    fn bias_is_added_per_channel_and_rounded_in_fp16() {
        let args = [
            ("x", halves(&[1, 2, 1], &[2048.0, 1.0]).into()),
            ("weight", halves(&[2, 2, 1], &[1.0; 4]).into()),
            ("bias", halves(&[2], &[1.0, 5.0]).into()),
        ];
        for (numerics, expected) in
            [(Numerics::Fast, [2050.0, 2054.0]), (Numerics::Fp16Exact, [2048.0, 2052.0])]
        {
            let out = call("conv", numerics, &args).unwrap();
            let view = out.view();
            let found: Vec<_> = view.slice::<f16>().unwrap().iter().map(|x| x.to_f32()).collect();
            assert_eq!(found, expected, "{numerics:?}");
        }
    }

    #[test]
    fn quantized_weights_are_scaled_per_channel() {
        let args = [
            ("x", floats(&[1, 2, 1], &[1.0, 10.0])),
            ("weight", tensor(&[2, 2, 1], &[1u8, 2, 3, 4])),
            text("quantization_type", "linear"),
            ("quant_scale", floats(&[2], &[1.0, 2.0])),
            ("quant_bias", floats(&[1], &[-1.0])),
        ];
        assert_eq!(output::<f32>(run("conv_quantized", Ios15, &args)), [10.0, 75.0]);
    }

    #[test]
    fn unknown_sizes_stay_unknown() {
        let unknown = Dim::Unknown;
        let x = TensorType::new(DType::F32, vec![unknown, unknown, Dim::Fixed(8), unknown]);
        let weight = TensorType::fixed(DType::F32, &[4, 2, 3, 3]);
        let out = infer_tensor("conv", &[("x", x), ("weight", weight)], &[]).unwrap();
        assert_eq!(out.shape, [unknown, Dim::Fixed(4), Dim::Fixed(6), unknown]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let (x, weight) = (counting(&[1, 4, 2]), counting(&[2, 2, 3]));
        let refuses = |more: &[(&str, Tensor)], reason: &str| {
            let args = [&[("x", x.clone()), ("weight", weight.clone())], more].concat();
            refused(run("conv", Ios15, &args), reason);
        };
        let two = || ("groups", Tensor::scalar(2i32));
        refuses(&[], "`weight` takes 2 channels per group, `x` has 4 in 1 groups");
        refuses(
            &[two()],
            "spatial dimension 0 of size 2 with padding 0 and a window of 3 gives an output of size 0",
        );
        let same_lower = text("pad_type", "same_lower");
        refuses(&[two(), same_lower], "`pad_type` is `same_lower`, which opset ios15 does not have");
        refuses(&[two(), ("strides", ints(&[0]))], "`strides` holds 0, which is not positive");
        refuses(&[("groups", Tensor::scalar(-1i32))], "`groups` is -1, which is not positive");
    }
}
