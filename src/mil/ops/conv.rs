//! `conv` and `conv_quantized` over one to three spatial dimensions.

use super::convolution::{Convolution, Filter};
use super::windows::{Padding, Windows, per_axis, spatial_rank};
use crate::kernels::floats::Sink;
use crate::mil::op::domain::{FLOAT, INT, TEXT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, TensorType, Type};
use crate::tensor::{DType, TensorView};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "conv",
        since: Opset::Ios15,
        params: &[
            Param::value("x", FLOAT).group('T'),
            Param::value("weight", FLOAT).group('T').packed(),
            Param::constant("bias", FLOAT).group('T').optional().packed(),
            STRIDES,
            PAD_TYPE,
            PAD,
            DILATIONS,
            GROUPS,
        ],
        infer,
        eval: Eval::Kernel(eval_conv),
    },
    OpDef {
        name: "conv",
        since: Opset::Ios17,
        params: &[
            Param::value("x", FLOAT).group('T'),
            Param::value("weight", FLOAT).group('U').packed(),
            Param::value("bias", FLOAT).group('U').optional().packed(),
            STRIDES,
            PAD_TYPE,
            PAD,
            DILATIONS,
            GROUPS,
        ],
        infer,
        eval: Eval::Kernel(eval_conv),
    },
    OpDef {
        name: "conv_quantized",
        since: Opset::Ios15,
        params: &[
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
        ],
        infer: infer_quantized,
        eval: Eval::Kernel(eval_quantized),
    },
];

pub(super) const STRIDES: Param = Param::constant("strides", INT).optional();
pub(super) const PAD_TYPE: Param = Param::constant("pad_type", TEXT).or_text("valid");
pub(super) const PAD: Param = Param::constant("pad", INT).optional();
pub(super) const DILATIONS: Param = Param::constant("dilations", INT).optional();
pub(super) const GROUPS: Param = Param::constant("groups", INT).or_int(1);

/// The `groups` parameter, which must divide the channels of the input where they are known.
pub(super) fn groups(call: &Call<'_>, channels: Dim) -> Result<usize, OpError> {
    let groups = call.int("groups")?;
    let count = usize::try_from(groups).unwrap_or(0);
    if count == 0 {
        return Err(OpError::new(format!("`groups` is {groups}, which is not positive")));
    }
    match channels.size() {
        Some(channels) if channels % count != 0 => {
            Err(OpError::new(format!("{channels} input channels are not divisible by {count} groups")))
        }
        _ => Ok(count),
    }
}

/// Checks that a bias has one element per output channel.
pub(super) fn check_bias(call: &Call<'_>, channels: Dim) -> Result<(), OpError> {
    let Some(bias) = call.opt_ty("bias")? else { return Ok(()) };
    match (&bias.shape[..], channels) {
        ([Dim::Fixed(found)], Dim::Fixed(wanted)) if *found != wanted => {
            Err(OpError::new(format!("`bias` has {found} elements for {wanted} output channels")))
        }
        ([_], _) => Ok(()),
        _ => Err(OpError::new(format!("`bias` is a {bias}, not a vector"))),
    }
}

fn windows(call: &Call<'_>, spatial: usize) -> Result<Windows, OpError> {
    Ok(Windows {
        stride: per_axis(call, "strides", spatial)?,
        dilation: per_axis(call, "dilations", spatial)?,
        padding: Padding::of(call, spatial)?,
        ceil: false,
    })
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (x, weight) = (call.ty("x")?, call.ty("weight")?);
    let (Some(rank), Some(weight_rank)) = (x.rank(), weight.rank()) else {
        return Ok(vec![TensorType::new(x.dtype, vec![Dim::Variadic]).into()]);
    };
    let windows = windows(call, spatial_rank(rank, 3)?)?;
    if weight_rank != rank {
        return Err(OpError::new(format!("`weight` has rank {weight_rank}, `x` has rank {rank}")));
    }
    let groups = groups(call, x.shape[1])?;
    let (inputs, outputs) = (weight.shape[1], weight.shape[0]);
    if let (Some(found), Some(channels)) = (inputs.size(), x.shape[1].size())
        && found != channels / groups
    {
        return Err(OpError::new(format!(
            "`weight` takes {found} channels per group, `x` has {channels} in {groups} groups"
        )));
    }
    if outputs.size().is_some_and(|outputs| outputs % groups != 0) {
        return Err(OpError::new(format!("{outputs} output channels are not divisible by {groups} groups")));
    }
    check_bias(call, outputs)?;
    check_kernel(weight)?;
    let mut shape = vec![x.shape[0], outputs];
    shape.extend(windows.output_dims(&x.shape[2..], &weight.shape[2..])?);
    Ok(vec![TensorType::new(x.dtype, shape).into()])
}

/// Checks that a weight `[_, _, *kernel]` has no empty kernel.
pub(super) fn check_kernel(weight: &TensorType) -> Result<(), OpError> {
    match weight.shape[2..].contains(&Dim::Fixed(0)) {
        true => Err(OpError::new(format!("`weight` is a {weight}, whose kernel is empty"))),
        false => Ok(()),
    }
}

fn infer_quantized(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let kind = call.text("quantization_type")?;
    if !kind.eq_ignore_ascii_case("linear") {
        return Err(OpError::new(format!(
            "`quantization_type` is `{kind}`; only `linear` can be told from the other parameters"
        )));
    }
    let bits = call.int("nbits")?;
    if !(1..=8).contains(&bits) {
        return Err(OpError::new(format!("`nbits` is {bits}, not one of 1 to 8")));
    }
    let channels = call.ty("weight")?.shape.first().and_then(|d| d.size());
    for name in ["quant_scale", "quant_bias"] {
        let elements = call.tensor(name)?.len();
        if elements != 1 && channels.is_some_and(|channels| channels != elements) {
            return Err(OpError::new(format!(
                "`{name}` has {elements} elements, not one or one per output channel"
            )));
        }
    }
    infer(call)
}

fn eval_conv(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    eval(call, outputs, None)
}

fn eval_quantized(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    eval(call, outputs, Some([call.tensor("quant_scale")?, call.tensor("quant_bias")?]))
}

fn eval(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    quantization: Option<[TensorView<'_>; 2]>,
) -> Result<(), OpError> {
    let (x, weight) = (call.tensor("x")?, call.weight("weight")?);
    let (out, scratch) = outputs.with_scratch(0)?;
    if out.shape().contains(&0) {
        return Ok(());
    }
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
