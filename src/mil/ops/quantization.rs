//! `quantize` and `dequantize`: affine quantisation of activations to and from 8 bits.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;

use super::blocks::Blocks;
use super::prelude::*;
use anemeter_kernels::convert::{round_f16, to_f32};
use anemeter_kernels::dequantize::{CHUNK, read_ints, shift_scale};

const BYTES: &[DType] = &[DType::I8, DType::U8];

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Elementwise, "quantize", Ios17, infer_quantize, quantize).takes(&[
        Param::value("input", FLOAT).group('S'),
        Param::constant("zero_point", BYTES).optional(),
        Param::constant("scale", FLOAT).group('S'),
        Param::constant("axis", INT).optional(),
        Param::constant("output_dtype", TEXT),
    ]),
    define(OpClass::Elementwise, "dequantize", Ios17, infer_dequantize, dequantize).takes(&[
        Param::value("input", BYTES).group('S'),
        Param::constant("zero_point", BYTES).group('S').optional(),
        Param::constant("scale", FLOAT),
        Param::constant("axis", INT).optional(),
    ]),
];

fn infer_quantize(call: &Call<'_>) -> Result<Vec<Type>> {
    let dtype = match call.text("output_dtype")? {
        "int8" => DType::I8,
        "uint8" => DType::U8,
        other => refuse!("`output_dtype` is `{other}`, not `int8` or `uint8`"),
    };
    if let Some(zero_point) = call.opt_ty("zero_point")?
        && zero_point.dtype != dtype
    {
        refuse!("`zero_point` holds {}, `output_dtype` is {dtype}", zero_point.dtype);
    }
    if let Some(scale) = call.known("scale")
        && (0..scale.len()).all(|i| number(&scale, i) == 0.0)
    {
        refuse!("`scale` is zero");
    }
    check_parameters(call)?;
    Ok(dims::one(dtype, call.ty("input")?.shape.clone()))
}

fn infer_dequantize(call: &Call<'_>) -> Result<Vec<Type>> {
    check_parameters(call)?;
    Ok(dims::one(call.ty("scale")?.dtype, call.ty("input")?.shape.clone()))
}

/// Scale and zero point are both scalars without an axis or both lists as long as the axis.
fn check_parameters(call: &Call<'_>) -> Result {
    let (input, scale) = (call.ty("input")?, call.ty("scale")?);
    let zero_point = call.opt_ty("zero_point")?;
    let rank = scale.shape.len();
    if let Some(zero_point) = zero_point.filter(|ty| ty.shape.len() != rank) {
        refuse!("`zero_point` is a {zero_point}, `scale` a {scale}");
    }
    match (rank, call.has("axis")) {
        (0, false) => return Ok(()),
        (0, true) => refuse!("`axis` is given, but `scale` is a scalar"),
        (1, false) => refuse!("`axis` is missing, but `scale` is a list"),
        (1, true) => {}
        _ => refuse!("`scale` is a {scale}, not a scalar or a list"),
    }
    let Some(input_rank) = input.rank() else { return Ok(()) };
    let axis = call.axis("axis", input_rank)?;
    for (name, ty) in [("scale", Some(scale)), ("zero_point", zero_point)] {
        if let Some((Dim::Fixed(len), Dim::Fixed(dim))) = ty.map(|ty| (ty.shape[0], input.shape[axis]))
            && len != dim
        {
            refuse!("`{name}` holds {len} numbers for {dim} along axis {axis}");
        }
    }
    Ok(())
}

fn number(view: &TensorView<'_>, index: usize) -> f32 {
    let mut value = [0.0];
    to_f32(view, index..index + 1, &mut value);
    value[0]
}

/// Calls `f(elements, zero point, scale)` for short runs that share both.
fn for_each_run(call: &Call<'_>, mut f: impl FnMut(Range<usize>, f32, f32)) -> Result {
    let (input, scale) = (call.tensor("input")?, call.tensor("scale")?);
    let zero_point = call.opt_tensor("zero_point")?;
    done_if!(input.is_empty());
    let mut counts: Shape = smallvec::smallvec![1; input.rank()];
    if call.has("axis") {
        counts[call.axis("axis", input.rank())?] = scale.len();
    }
    Blocks::new(input.shape(), &counts)?.for_each_run(0..input.len(), |channel, run| {
        let offset = zero_point.map_or(0.0, |zero_point| number(&zero_point, channel));
        for start in run.clone().step_by(CHUNK) {
            f(start..run.end.min(start + CHUNK), offset, number(&scale, channel));
        }
    });
    Ok(())
}

fn quantize(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (input, out) = (call.tensor("input")?, outputs.tensor(0)?);
    let (low, high) = if out.dtype() == DType::I8 { (-128.0, 127.0) } else { (0.0, 255.0) };
    let (out, rounds) = (out.bytes(), call.rounds(input.dtype()));
    let mut values = [0.0; CHUNK];
    for_each_run(call, |run, zero_point, scale| {
        to_f32(&input, run.clone(), &mut values);
        for (out, value) in out[run].iter_mut().zip(values) {
            let scaled = value / scale;
            let scaled = if rounds { round_f16(scaled) } else { scaled };
            let whole = (scaled.round_ties_even() + zero_point).clamp(low, high) as i32;
            *out = (whole & 0xff) as u8;
        }
    })
}

fn dequantize(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let input = call.tensor("input")?;
    let expand = |run: &Range<usize>, zero_point: f32, scale: f32, out: &mut [f32]| {
        read_ints(input.bytes(), input.dtype(), run.start, out);
        shift_scale(out, zero_point, scale);
    };
    let out: TensorMut<'_> = outputs.tensor(0)?;
    if out.dtype() == DType::F32 {
        let out = out.slice::<f32>()?;
        return for_each_run(call, |run, zero_point, scale| {
            expand(&run, zero_point, scale, &mut out[run.clone()]);
        });
    }
    let out = out.slice::<f16>()?;
    let mut values = [0.0; CHUNK];
    for_each_run(call, |run, zero_point, scale| {
        let values = &mut values[..run.len()];
        expand(&run, zero_point, scale, values);
        out[run].convert_from_f32_slice(values);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantising_rounds_half_to_even_and_saturates() {
        let args = [
            ("input", tensor(&[6], &[0.5f32, 1.5, 2.5, -300.0, 300.0, f32::NAN])),
            ("scale", Tensor::scalar(1.0f32)),
            text("output_dtype", "int8"),
        ];
        assert_eq!(output::<i8>(run("quantize", Ios17, &args)), [0, 2, 2, -128, 127, 0]);
    }

    #[test]
    fn parameters_lie_along_the_axis() {
        let args = [
            ("input", tensor(&[2, 2], &[1.0f32, 1.0, 3.0, 3.0])),
            ("zero_point", tensor(&[2], &[10u8, 255])),
            ("scale", tensor(&[2], &[0.5f32, 2.0])),
            ("axis", Tensor::scalar(-1i32)),
            text("output_dtype", "uint8"),
        ];
        let out = run("quantize", Ios17, &args).unwrap();
        assert_eq!(out[0].view().slice::<u8>().unwrap(), [12, 255, 16, 255]);
        let args = [
            ("input", out[0].clone()),
            ("zero_point", args[1].1.clone()),
            ("scale", tensor(&[2], &[f16::from_f32(0.5), f16::from_f32(2.0)])),
            ("axis", Tensor::scalar(1i32)),
        ];
        let out = run("dequantize", Ios17, &args).unwrap();
        let values: Vec<f32> = out[0].view().slice::<f16>().unwrap().iter().map(|x| x.to_f32()).collect();
        assert_eq!(values, [1.0, 0.0, 3.0, 0.0]);
    }

    #[test]
    fn parameters_that_do_not_fit_are_refused() {
        let input = ("input", tensor(&[2], &[1u8, 2]));
        let list = ("scale", tensor(&[3], &[1.0f32; 3]));
        let axis = ("axis", Tensor::scalar(0i32));
        for (args, message) in [
            (vec![input.clone(), list.clone()], "`axis` is missing, but `scale` is a list"),
            (vec![input.clone(), list, axis.clone()], "`scale` holds 3 numbers for 2 along axis 0"),
            (
                vec![input, ("scale", Tensor::scalar(1.0f32)), axis],
                "`axis` is given, but `scale` is a scalar",
            ),
        ] {
            refused(run("dequantize", Ios17, &args), message);
        }
    }
}
