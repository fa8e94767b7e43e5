//! `conv_transpose` over one to three spatial dimensions.

use super::conv::{DILATIONS, GROUPS, PAD, PAD_TYPE, STRIDES, check_bias, check_kernel, groups};
use super::prelude::*;
use super::windows::{Padding, Windows, per_axis, spatial_rank};
use anemeter_kernels::conv::{add_bias, fold};
use anemeter_kernels::floats::{self, Sink};
use anemeter_kernels::gemm::{Extents, Matrix, gemm};
use anemeter_kernels::parallel::for_each_chunk;
use anemeter_kernels::window::Window;

pub(super) const OPS: &[OpDef] = &[
    conv_transpose(Ios15).takes(&params(
        'T',
        Param::constant("weight", FLOAT),
        Param::constant("bias", FLOAT),
    )),
    conv_transpose(Ios17).takes(&params('U', Param::value("weight", FLOAT), Param::value("bias", FLOAT))),
];

const fn conv_transpose(since: Opset) -> OpDef {
    define(OpClass::Product(flops), "conv_transpose", since, infer, eval)
}

const fn params(group: char, weight: Param, bias: Param) -> [Param; 9] {
    let weight = weight.group(group).packed().weight(WeightAxes::InputOutput);
    let bias = bias.group(group).optional().packed();
    let x = Param::value("x", FLOAT).group('T');
    [x, weight, bias, PAD, OUTPUT_SHAPE, PAD_TYPE, STRIDES, DILATIONS, GROUPS]
}

/// Each element of `x` is added to the result through one filter.
fn flops(call: &Call<'_>, out: &[usize]) -> Option<u64> {
    let (x, weight) = (call.ty("x").ok()?.concrete()?, call.ty("weight").ok()?.concrete()?);
    Some(products(call, out, elements(&x).saturating_mul(elements(weight.get(1..)?))))
}

const OUTPUT_SHAPE: Param = Param::constant("output_shape", INT).optional();

fn windows(call: &Call<'_>, spatial: usize) -> Result<Windows> {
    let padding = Padding::of(call, spatial)?;
    if padding == Padding::SameLower {
        refuse!("`pad_type` is `same_lower`, not one of `valid`, `same` and `custom`");
    }
    Ok(Windows {
        stride: per_axis(call, "strides", spatial)?,
        dilation: per_axis(call, "dilations", spatial)?,
        padding,
        ceil: false,
    })
}

/// Output size that the windows themselves give, before any padding is cut off.
fn full_size(windows: &Windows, axis: usize, input: usize, kernel: usize) -> i128 {
    (input as i128 - 1) * i128::from(windows.stride[axis]) + windows.extent(axis, kernel)
}

/// Output size along an axis, which is free within bounds if `given`, because a convolution maps several
/// input sizes to one output size.
fn output_size(
    windows: &Windows,
    axis: usize,
    [input, kernel]: [usize; 2],
    given: Option<i64>,
) -> Result<usize> {
    let full = full_size(windows, axis, input, kernel);
    let size = match (given, &windows.padding) {
        (Some(given), _) => given.into(),
        (None, Padding::Custom(pad)) => full - i128::from(pad[2 * axis]) - i128::from(pad[2 * axis + 1]),
        (None, Padding::Same) => input as i128 * i128::from(windows.stride[axis]),
        (None, Padding::Valid | Padding::SameLower) => full,
    };
    // Kernels compute with positions of the whole, uncut output.
    match (isize::try_from(size), isize::try_from(full)) {
        (Ok(size), Ok(_)) if size > 0 => Ok(size.cast_unsigned()),
        _ => refuse!(
            "spatial dimension {axis} of size {input} with a window of {kernel} gives an output of size {size}"
        ),
    }
}

/// Padding that is cut off in front of the output along an axis.
fn cut_before(windows: &Windows, axis: usize, [input, kernel, output]: [usize; 3]) -> isize {
    let cut = match &windows.padding {
        Padding::Custom(pad) => pad[2 * axis].into(),
        Padding::Same => (full_size(windows, axis, input, kernel) - output as i128).max(0) / 2,
        Padding::Valid | Padding::SameLower => 0,
    };
    isize::try_from(cut).unwrap_or(isize::MAX)
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, weight) = (call.ty("x")?, call.ty("weight")?);
    let (Some(rank), Some(weight_rank)) = (x.rank(), weight.rank()) else {
        return Ok(dims::unranked(x.dtype));
    };
    let windows = windows(call, spatial_rank(rank, 3)?)?;
    refuse_if!(weight_rank != rank, "`weight` has rank {weight_rank}, `x` has rank {rank}");
    if let (Some(found), Some(channels)) = (weight.shape[0].size(), x.shape[1].size())
        && found != channels
    {
        refuse!("`weight` takes {found} channels, `x` has {channels}");
    }
    let groups = groups(call, x.shape[1])?;
    let channels = match weight.shape[1].size() {
        Some(per_group) => Dim::from(per_group.checked_mul(groups).ok_or_else(|| {
            op_error!("{per_group} output channels in each of {groups} groups are too many")
        })?),
        None => Dim::Unknown,
    };
    check_bias(call, channels)?;
    check_kernel(weight)?;
    let given = given_shape(call, [x.shape[0], channels], rank)?;
    let mut shape = vec![x.shape[0], channels];
    for axis in 2..rank {
        let given = given.as_ref().map(|shape| shape[axis]);
        shape.push(match (x.shape[axis].size(), weight.shape[axis].size(), given) {
            (Some(input), Some(kernel), _) => {
                Dim::from(output_size(&windows, axis - 2, [input, kernel], given)?)
            }
            (_, _, Some(given)) => Dim::Fixed(given.unsigned_abs()),
            _ => Dim::Unknown,
        });
    }
    Ok(dims::one(x.dtype, shape))
}

/// The output shape that a program asks for.
fn given_shape(call: &Call<'_>, own: [Dim; 2], rank: usize) -> Result<Option<Ints>> {
    if !call.has("output_shape") {
        return Ok(None);
    }
    let given = call.ints("output_shape")?;
    refuse_if!(given.len() != rank, "`output_shape` is {given:?} for an output of rank {rank}");
    for (&size, own) in given.iter().zip(own) {
        if own.size().is_some_and(|own| i64::try_from(own) != Ok(size)) {
            refuse!("`output_shape` is {given:?}, it has {size} in place of {own}");
        }
    }
    match given[2..].iter().find(|&&size| size < 1) {
        Some(size) => refuse!("`output_shape` is {given:?}, {size} is not a size"),
        None => Ok(Some(given)),
    }
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, weight) = (call.tensor("x")?, call.weight("weight")?);
    let (out, scratch) = outputs.with_scratch(0)?;
    done_if!(out.shape().contains(&0));
    let spatial = x.rank() - 2;
    let windows = windows(call, spatial)?;
    let (input, kernel, output) = (&x.shape()[2..], &weight.shape()[2..], &out.shape()[2..]);
    let mut before = [0; 3];
    for axis in 0..spatial {
        let sizes = [input[axis], kernel[axis], output[axis]];
        before[3 - spatial + axis] = cut_before(&windows, axis, sizes);
    }
    // The windows of the convolution that this is the transpose of: its input is the output here.
    let window = Window { before, ..windows.window(output, kernel, input) };
    let groups = groups(call, Dim::from(x.shape()[1]))?;
    let transpose = Transpose {
        weight,
        bias: if call.has("bias") { Some(call.weight("bias")?) } else { None },
        window,
        groups,
        batch: x.shape()[0],
        inputs: x.shape()[1] / groups,
        outputs: weight.shape()[1],
        round_steps: call.rounds(x.dtype()),
    };
    transpose.evaluate(&x, scratch, &mut Sink::new(out)?);
    Ok(())
}

/// Elements of the weight and of products that are worked on at a time.
const WEIGHT_BLOCK: usize = 1 << 18;
const PRODUCT_BLOCK: usize = 1 << 20;

/// A transposed convolution of known sizes; channels are per group.
struct Transpose<'a> {
    weight: Weight<'a>,
    bias: Option<Weight<'a>>,
    window: Window,
    groups: usize,
    batch: usize,
    inputs: usize,
    outputs: usize,
    round_steps: bool,
}

impl Transpose<'_> {
    /// Each input position times the weights of a block of output channels, added into the output where the
    /// position's window lies.
    fn evaluate(&self, x: &TensorView<'_>, scratch: &mut Scratch, sink: &mut Sink<'_>) {
        let (taps, positions) = (self.window.kernel_len(), self.window.output_len());
        let plane = self.window.input_len();
        let block = (WEIGHT_BLOCK / (self.inputs * taps).max(1)).clamp(1, self.outputs);
        let width = (PRODUCT_BLOCK / (block * taps)).max(16).min(positions).max(1);
        let [copy, bias, weights, columns, result] = scratch.floats([
            floats::scratch_len(x),
            if self.bias.is_some() { self.groups * self.outputs } else { 0 },
            self.inputs * block * taps,
            block * taps * width,
            block * plane,
        ]);
        let x = floats::read(x, copy);
        if let Some(given) = &self.bias {
            given.read(0..bias.len(), bias);
        }
        for group in 0..self.groups {
            for first in (0..self.outputs).step_by(block) {
                let count = block.min(self.outputs - first);
                let row = count * taps;
                for (i, weights) in weights[..self.inputs * row].chunks_exact_mut(row).enumerate() {
                    let at = ((group * self.inputs + i) * self.outputs + first) * taps;
                    self.weight.read(at..at + row, weights);
                }
                let left = Matrix::row_major(weights, row).transposed();
                for item in 0..self.batch {
                    let planes = &x[(item * self.groups + group) * self.inputs * positions..];
                    let result = &mut result[..count * plane];
                    result.fill(0.0);
                    for start in (0..positions).step_by(width) {
                        let span = start..positions.min(start + width);
                        let right = Matrix::row_major(planes.get(start..).unwrap_or(&[]), positions);
                        let extents = Extents { m: row, k: self.inputs, n: span.len() };
                        let columns = &mut columns[..row * span.len()];
                        gemm(extents, left, right, columns, self.round_steps);
                        for_each_chunk(result, plane, columns.len(), |i, out| {
                            let columns = &columns[i * taps * span.len()..];
                            fold(&self.window, columns, span.clone(), out, self.round_steps);
                        });
                    }
                    let channel = group * self.outputs + first;
                    add_bias(result, plane, bias.get(channel..).unwrap_or(&[]), self.round_steps);
                    sink.write((item * self.groups * self.outputs + channel) * plane, result);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pad_types_and_output_shapes_cut_the_whole_output() {
        let x = floats(&[1, 1, 2], &[1.0, 2.0]);
        let weight = floats(&[1, 1, 3], &[1.0, 10.0, 100.0]);
        let (none, five, three) = (None, Some(ints(&[1, 1, 5])), Some(ints(&[1, 1, 3])));
        for (pad_type, output_shape, expected) in [
            ("valid", &none, &[1.0, 10.0, 102.0, 20.0, 200.0][..]),
            ("custom", &none, &[10.0, 102.0, 20.0]),
            ("same", &none, &[1.0, 10.0, 102.0, 20.0]),
            ("same", &three, &[10.0, 102.0, 20.0]),
            ("same", &five, &[1.0, 10.0, 102.0, 20.0, 200.0]),
            ("valid", &Some(ints(&[1, 1, 6])), &[1.0, 10.0, 102.0, 20.0, 200.0, 0.0]),
        ] {
            let mut args = vec![
                ("x", x.clone()),
                ("weight", weight.clone()),
                ("strides", ints(&[2])),
                ("pad", ints(&[1, 1])),
                text("pad_type", pad_type),
            ];
            args.extend(output_shape.clone().map(|shape| ("output_shape", shape)));
            let out = run("conv_transpose", Ios15, &args).unwrap();
            assert_eq!(out[0].view().slice::<f32>().unwrap(), expected, "{pad_type} {output_shape:?}");
        }
    }

    #[test]
    fn groups_have_their_own_weights_and_bias() {
        let args = [
            ("x", floats(&[1, 2, 1, 2], &[1.0, 2.0, 3.0, 4.0]).into()),
            ("weight", compressed(floats(&[2, 2, 1, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 0.0]))),
            ("bias", floats(&[4], &[10.0, 20.0, 30.0, 40.0]).into()),
            ("groups", Tensor::scalar(2i32).into()),
        ];
        let out = call("conv_transpose", Numerics::Fast, &args).unwrap();
        assert_eq!(out.shape(), [1, 4, 1, 3]);
        let expected = [[11.0, 12.0, 10.0], [20.0, 21.0, 22.0], [33.0, 37.0, 34.0], [46.0, 48.0, 40.0]];
        assert_eq!(out.view().slice::<f32>().unwrap(), expected.concat());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let x = floats(&[1, 1, 1], &[1.0]);
        let refuses = |weight: &[usize], more: &[(&str, Tensor)], reason: &str| {
            let weight = floats(weight, &vec![0.0; weight.iter().product()]);
            let args = [&[("x", x.clone()), ("weight", weight)], more].concat();
            refused(run("conv_transpose", Ios15, &args), reason);
        };
        refuses(&[2, 1, 1], &[], "`weight` takes 2 channels, `x` has 1");
        let given = [("output_shape", ints(&[1, 2, 1]))];
        refuses(&[1, 3, 1], &given, "`output_shape` is [1, 2, 1], it has 2 in place of 3");
        let custom = [text("pad_type", "custom"), ("pad", ints(&[1, 0]))];
        let reason = "spatial dimension 0 of size 1 with a window of 1 gives an output of size 0";
        refuses(&[1, 1, 1], &custom, reason);
    }
}
