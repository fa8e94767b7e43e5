//! `resize`, `resize_bilinear`, `resize_nearest_neighbor`, `upsample_bilinear` and
//! `upsample_nearest_neighbor`: the trailing dimensions of a tensor at another size.
//!
//! The nearest-neighbour operations differ in which input element an output element repeats: upsampling takes
//! the one its start lies in, resizing the one its centre lies in. `resize` does the latter by default and
//! rounds the positions of any other sampling mode. Scale factors only determine sizes; positions follow from
//! the sizes.

use bytemuck::cast_slice_mut;
use half::f16;
use half::slice::HalfFloatSliceExt;
use smallvec::SmallVec;

use super::choice::choice;
use crate::kernels::convert;
use crate::kernels::resample::{self, Axis, Grid, Nearest, Sampling};
use crate::mil::op::domain::{BOOL, FLOAT, FLOAT_INT, INT, TEXT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param, define};
use crate::mil::{Dim, Opset, TensorType, Type};
use crate::tensor::{DType, Shape, TensorMut, shape};

const X: Param = Param::value("x", FLOAT);
const SCALE: &[DType] = &[DType::F32, DType::I32];
const SCALE_HEIGHT: Param = Param::constant("scale_factor_height", SCALE).group('U').or_float(1.0);
const SCALE_WIDTH: Param = Param::constant("scale_factor_width", SCALE).group('U').or_float(1.0);
const ALIGN: Param = Param::constant("align_corners", BOOL).or_bool(true);
const HEIGHT: Param = Param::constant("target_size_height", INT);
const WIDTH: Param = Param::constant("target_size_width", INT);
const SAMPLING: Param = Param::constant("sampling_mode", TEXT).or_text("DEFAULT");

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "upsample_nearest_neighbor",
        since: Opset::Ios15,
        params: &[X, SCALE_HEIGHT, SCALE_WIDTH],
        infer: infer_scaled,
        eval: Eval::Kernel(|call, outputs| nearest(call, outputs, 2, |_, _| Nearest::Start)),
    },
    OpDef {
        name: "resize_nearest_neighbor",
        since: Opset::Ios15,
        params: &[X, HEIGHT, WIDTH],
        infer: infer_target,
        eval: Eval::Kernel(|call, outputs| nearest(call, outputs, 2, |_, _| Nearest::Centre)),
    },
    upsample_bilinear(Opset::Ios15, &[X, SCALE_HEIGHT, SCALE_WIDTH, ALIGN]),
    upsample_bilinear(
        Opset::Ios16,
        &[X, SCALE_HEIGHT, SCALE_WIDTH, ALIGN, Param::constant("half_pixel_centers", BOOL).optional()],
    ),
    OpDef {
        name: "resize_bilinear",
        since: Opset::Ios15,
        params: &[X, HEIGHT.or_int(1), WIDTH.or_int(1), SAMPLING],
        infer: infer_bilinear_target,
        eval: Eval::Kernel(|call, outputs| linear(call, outputs, 2, sampling_mode(call)?)),
    },
    OpDef {
        name: "resize",
        since: Opset::Ios17,
        params: &[
            Param::value("x", FLOAT_INT),
            Param::value("shape", &[DType::I32, DType::I16, DType::U16, DType::U32]),
            Param::constant("resized_dims", &[DType::U32]),
            Param::constant("interpolation_mode", TEXT).or_text("LINEAR"),
            SAMPLING,
        ],
        infer: infer_resize,
        eval: Eval::Kernel(eval_resize),
    },
];

const fn upsample_bilinear(since: Opset, params: &'static [Param]) -> OpDef {
    define("upsample_bilinear", since, params, infer_scaled, |call, outputs| {
        linear(call, outputs, 2, upsampling(call)?)
    })
}

/// The parameter `sampling_mode`.
pub(super) fn sampling_mode(call: &Call<'_>) -> Result<Sampling, OpError> {
    let modes = [
        ("DEFAULT", Sampling::Default),
        ("STRICT_ALIGN_CORNERS", Sampling::StrictAlignCorners),
        ("ALIGN_CORNERS", Sampling::AlignCorners),
        ("OFFSET_CORNERS", Sampling::OffsetCorners),
        ("UNALIGN_CORNERS", Sampling::UnalignCorners),
    ];
    choice(call, "sampling_mode", &modes)
}

/// A size given as a constant.
pub(super) fn size(call: &Call<'_>, name: &str) -> Result<Dim, OpError> {
    let given = call.int(name)?;
    u64::try_from(given)
        .map(Dim::Fixed)
        .map_err(|_| OpError::new(format!("`{name}` is {given}, a size cannot be negative")))
}

fn upsampling(call: &Call<'_>) -> Result<Sampling, OpError> {
    let align = call.bool("align_corners")?;
    let given = call.opset() >= Opset::Ios16 && call.has("half_pixel_centers");
    let half_pixel = if given { call.bool("half_pixel_centers")? } else { !align };
    Ok(match (align, half_pixel) {
        (true, false) => Sampling::StrictAlignCorners,
        (true, true) => Sampling::AlignCornersHalfPixel,
        (false, false) => Sampling::Default,
        (false, true) => Sampling::UnalignCorners,
    })
}

/// The type of `x` with its last two dimensions replaced by what `resized` makes of them.
fn infer_image(
    call: &Call<'_>,
    resized: impl Fn(Dim, Dim) -> Result<(Dim, Dim), OpError>,
) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    let mut dims = x.shape.clone();
    match (x.rank(), &mut dims[..]) {
        (None, _) => {}
        (Some(_), [_, .., height, width]) => (*height, *width) = resized(*height, *width)?,
        (Some(rank), _) => return Err(OpError::new(format!("`x` has rank {rank}, should have at least 3"))),
    }
    finish(x, dims)
}

/// An output type, unless it would have to be made of nothing.
fn finish(x: &TensorType, dims: Vec<Dim>) -> Result<Vec<Type>, OpError> {
    for (axis, (from, to)) in x.shape.iter().zip(&dims).enumerate() {
        if *from == Dim::Fixed(0) && matches!(to, Dim::Fixed(1..)) {
            return Err(OpError::new(format!("dimension {axis} of `x` is empty, cannot be resized to {to}")));
        }
    }
    Ok(vec![TensorType::new(x.dtype, dims).into()])
}

fn infer_scaled(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    infer_image(call, |height, width| {
        Ok((scaled(call, "scale_factor_height", height)?, scaled(call, "scale_factor_width", width)?))
    })
}

fn scaled(call: &Call<'_>, name: &str, dim: Dim) -> Result<Dim, OpError> {
    let factor = call.float(name)?;
    let whole = call.opt_ty(name)?.is_some_and(|ty| ty.dtype == DType::I32);
    if !(factor.is_finite() && factor >= 0.0) {
        return Err(OpError::new(format!("`{name}` is {factor}, cannot scale by that")));
    }
    let Dim::Fixed(size) = dim else { return Ok(dim) };
    Ok(Dim::Fixed(if whole {
        size.saturating_mul(call.int(name)?.unsigned_abs())
    } else {
        (size as f32 * factor).floor() as u64
    }))
}

fn infer_target(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    infer_image(call, |_, _| Ok((size(call, "target_size_height")?, size(call, "target_size_width")?)))
}

fn infer_bilinear_target(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    sampling_mode(call)?;
    infer_target(call)
}

fn infer_resize(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (x, target) = (call.ty("x")?, call.ty("shape")?);
    interpolation_mode(call)?;
    sampling_mode(call)?;
    if target.rank().is_some_and(|rank| rank != 1) {
        return Err(OpError::new(format!("`shape` is a {target}, should have rank 1")));
    }
    let Some(rank) = x.rank() else { return Ok(vec![x.clone().into()]) };
    let sizes = call.known_ints("shape")?;
    let length = sizes.as_ref().map(SmallVec::len).or(target.shape[0].size()).unwrap_or(rank);
    let resized = resized_dims(call)?;
    if resized > length || length > rank {
        let text = format!("`resized_dims` is {resized}, `shape` has {length} elements and `x` rank {rank}");
        return Err(OpError::new(format!("{text}, should not decrease")));
    }
    let mut dims = x.shape.clone();
    for (i, dim) in dims[rank - resized..].iter_mut().enumerate() {
        let Some(sizes) = &sizes else {
            *dim = Dim::Unknown;
            continue;
        };
        match u64::try_from(sizes[length - resized + i]) {
            Ok(0) => {}
            Ok(size) => *dim = Dim::Fixed(size),
            Err(_) => return Err(OpError::new(format!("`shape` is {sizes:?}, a size cannot be negative"))),
        }
    }
    finish(x, dims)
}

fn resized_dims(call: &Call<'_>) -> Result<usize, OpError> {
    let given = call.int("resized_dims")?;
    usize::try_from(given).map_err(|_| OpError::new(format!("`resized_dims` is {given}, cannot be negative")))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interpolation {
    Linear,
    Nearest,
}

fn interpolation_mode(call: &Call<'_>) -> Result<Interpolation, OpError> {
    let modes = [("LINEAR", Interpolation::Linear), ("NEAREST_NEIGHBOR", Interpolation::Nearest)];
    choice(call, "interpolation_mode", &modes)
}

fn eval_resize(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (axes, sampling) = (resized_dims(call)?, sampling_mode(call)?);
    match (interpolation_mode(call)?, sampling) {
        (Interpolation::Linear, _) => linear(call, outputs, axes, sampling),
        (Interpolation::Nearest, Sampling::Default) => nearest(call, outputs, axes, |_, _| Nearest::Centre),
        (Interpolation::Nearest, _) => nearest(call, outputs, axes, |input, output| {
            Nearest::Rounded(Grid::new(sampling, input as f64 - 1.0, output))
        }),
    }
}

/// Linear interpolation along the last `axes` dimensions, one after the other.
fn linear(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    axes: usize,
    sampling: Sampling,
) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let (out, scratch) = outputs.with_scratch(0)?;
    let (from, to) = (x.shape(), out.shape());
    let elements = shape::element_count(to).unwrap_or(0);
    if elements == 0 {
        return Ok(());
    }
    let mut steps: SmallVec<[(usize, Grid); 6]> = (from.len() - axes..from.len())
        .map(|axis| (axis, Grid::new(sampling, from[axis] as f64 - 1.0, to[axis])))
        .filter(|(axis, grid)| !grid.is_identity(to[*axis]))
        .collect();
    if steps.is_empty() {
        out.bytes().copy_from_slice(x.bytes());
        return Ok(());
    }
    // Shrinking first keeps what lies between no larger than input and output.
    let growth = |axis: usize| to[axis] as f64 / from[axis] as f64;
    steps.sort_unstable_by(|a, b| growth(a.0).total_cmp(&growth(b.0)));
    let largest = elements.max(x.len());
    let longest = to.iter().copied().max().unwrap_or(0);
    let [mut source, mut target, low, weight] = scratch.floats([largest, largest, longest, longest]);
    let low: &mut [u32] = cast_slice_mut(low);
    convert::to_f32(&x, 0..x.len(), source);
    let mut shape = Shape::from(from);
    for (axis, grid) in steps {
        let before: usize = shape.iter().product();
        let (input, output) = (shape[axis], to[axis]);
        resample::locate(grid, &mut low[..output], &mut weight[..output]);
        shape[axis] = output;
        let after: usize = shape.iter().product();
        let inner = shape[axis + 1..].iter().product();
        let along = Axis { low: &low[..output], weight: &weight[..output], input };
        let rounds = call.rounds(x.dtype());
        resample::interpolate(along, inner, &source[..before], &mut target[..after], rounds);
        std::mem::swap(&mut source, &mut target);
    }
    store(&source[..elements], out)
}

/// Floats are rounded to their type, integers to the nearest.
fn store(values: &[f32], out: TensorMut<'_>) -> Result<(), OpError> {
    match out.dtype() {
        DType::F32 => out.slice::<f32>()?.copy_from_slice(values),
        DType::F16 => out.slice::<f16>()?.convert_from_f32_slice(values),
        _ => {
            for (out, value) in out.slice::<i32>()?.iter_mut().zip(values) {
                *out = value.round() as i32;
            }
        }
    }
    Ok(())
}

/// Repetition along the last `axes` dimensions by the rule for their input and output sizes.
fn nearest(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    axes: usize,
    rule: impl Fn(usize, usize) -> Nearest,
) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let (out, scratch) = outputs.with_scratch(0)?;
    let (from, to) = (x.shape(), out.shape());
    if shape::element_count(to) == Some(0) {
        return Ok(());
    }
    let first = from.len() - axes;
    let [mut rest] = scratch.floats([to[first..].iter().sum()]);
    let mut tables: SmallVec<[(usize, &[u32]); 6]> = SmallVec::new();
    for (&input, &output) in from[first..].iter().zip(&to[first..]) {
        let (table, tail) = rest.split_at_mut(output);
        let table: &mut [u32] = cast_slice_mut(table);
        let rule = rule(input, output);
        for (i, source) in table.iter_mut().enumerate() {
            *source = rule.source(i, input, output) as u32;
        }
        tables.push((input, table));
        rest = tail;
    }
    match x.dtype() {
        DType::F32 => resample::pick(&tables, x.slice::<f32>()?, out.slice()?),
        DType::F16 => resample::pick(&tables, x.slice::<f16>()?, out.slice()?),
        _ => resample::pick(&tables, x.slice::<i32>()?, out.slice()?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{run, text};
    use super::*;
    use crate::tensor::Tensor;

    type Args<'a> = &'a [(&'a str, Tensor)];

    fn flag(name: &'static str, value: bool) -> (&'static str, Tensor) {
        (name, Tensor::from_bools(&[], &[value]).unwrap())
    }

    fn resized(op: &str, opset: Opset, x: &Tensor, args: Args<'_>) -> (Vec<usize>, Vec<f32>) {
        let args = [&[("x", x.clone())], args].concat();
        let out = run(op, opset, &args).unwrap().remove(0);
        let mut values = vec![0.0; out.view().len()];
        convert::to_f32(&out.view(), 0..values.len(), &mut values);
        let rounded = values.iter().map(|x| (x * 1000.0).round() / 1000.0).collect();
        (out.shape().to_vec(), rounded)
    }

    #[test]
    fn bilinear_modes() {
        let x = Tensor::from_slice(&[1, 1, 1, 2], &[1.0f32, 2.0]).unwrap();
        let sizes = [("scale_factor_height", Tensor::scalar(1)), ("scale_factor_width", Tensor::scalar(2))];
        for (align, half_pixel, expected) in [
            (true, None, [1.0, 1.333, 1.667, 2.0]),
            (false, None, [1.0, 1.25, 1.75, 2.0]),
            (false, Some(false), [1.0, 1.5, 2.0, 2.0]),
            (true, Some(true), [1.0, 1.0, 1.333, 1.667]),
        ] {
            let mut args = sizes.to_vec();
            args.push(flag("align_corners", align));
            args.extend(half_pixel.map(|half| flag("half_pixel_centers", half)));
            let (shape, values) = resized("upsample_bilinear", Opset::Ios16, &x, &args);
            assert_eq!(shape, [1, 1, 1, 4]);
            assert_eq!(values, expected);
        }
    }

    #[test]
    fn both_dimensions_shrink_and_grow() {
        let values: Vec<f16> = (1..=8u8).map(|i| f16::from_f32(f32::from(i))).collect();
        let x = Tensor::from_slice(&[1, 2, 4], &values).unwrap();
        let args = [
            ("target_size_height", Tensor::scalar(3)),
            ("target_size_width", Tensor::scalar(2)),
            text("sampling_mode", "STRICT_ALIGN_CORNERS"),
        ];
        let (shape, values) = resized("resize_bilinear", Opset::Ios15, &x, &args);
        assert_eq!(shape, [1, 3, 2]);
        assert_eq!(values, [1.0, 4.0, 3.0, 6.0, 5.0, 8.0]);
    }

    #[test]
    fn fractional_scales_round_sizes_down() {
        let x = Tensor::from_slice(&[1, 1, 3], &[1.5f32, -2.5, 3.5]).unwrap();
        let args = [
            ("scale_factor_height", Tensor::scalar(2.5f32)),
            ("scale_factor_width", Tensor::scalar(0.67f32)),
        ];
        let (shape, values) = resized("upsample_nearest_neighbor", Opset::Ios15, &x, &args);
        assert_eq!(shape, [1, 2, 2]);
        assert_eq!(values, [1.5, -2.5, 1.5, -2.5]);
    }

    #[test]
    fn resize_takes_any_number_of_dimensions() {
        let x = Tensor::from_slice(&[2, 1, 2], &[10, 20, 30, 40]).unwrap();
        let shape = |sizes: &[i16]| ("shape", Tensor::from_slice(&[sizes.len()], sizes).unwrap());
        let dims = |n: u32| ("resized_dims", Tensor::scalar(n));
        for (args, expected_shape, expected) in [
            (vec![shape(&[9, 0]), dims(1)], [2, 1, 2], vec![10.0, 20.0, 30.0, 40.0]),
            (
                vec![shape(&[3, 0, 1]), dims(3), text("sampling_mode", "ALIGN_CORNERS")],
                [3, 1, 1],
                vec![15.0, 25.0, 35.0],
            ),
            (
                vec![shape(&[2, 3]), dims(2), text("interpolation_mode", "NEAREST_NEIGHBOR")],
                [2, 2, 3],
                [[10.0, 20.0, 20.0], [10.0, 20.0, 20.0], [30.0, 40.0, 40.0], [30.0, 40.0, 40.0]].concat(),
            ),
        ] {
            let (shape, values) = resized("resize", Opset::Ios17, &x, &args);
            assert_eq!(shape, expected_shape);
            assert_eq!(values, expected);
        }
    }

    #[test]
    fn bad_calls_are_named() {
        let x = || ("x", Tensor::from_slice(&[1, 1, 2], &[0.0f32; 2]).unwrap());
        let dims = ("resized_dims", Tensor::scalar(2u32));
        for (op, args, message) in [
            (
                "resize_nearest_neighbor",
                vec![
                    x(),
                    ("target_size_height", Tensor::scalar(-1)),
                    ("target_size_width", Tensor::scalar(1)),
                ],
                "`target_size_height` is -1, a size cannot be negative",
            ),
            (
                "upsample_bilinear",
                vec![x(), ("scale_factor_width", Tensor::scalar(f32::NAN))],
                "`scale_factor_width` is NaN, cannot scale by that",
            ),
            (
                "resize",
                vec![x(), dims.clone(), ("shape", Tensor::from_slice(&[1], &[3]).unwrap())],
                "`resized_dims` is 2, `shape` has 1 elements and `x` rank 3, should not decrease",
            ),
            (
                "resize",
                vec![
                    ("x", Tensor::from_slice::<f32>(&[1, 0], &[]).unwrap()),
                    dims,
                    ("shape", Tensor::from_slice(&[2], &[3, 3]).unwrap()),
                ],
                "dimension 1 of `x` is empty, cannot be resized to 3",
            ),
        ] {
            assert_eq!(run(op, Opset::Ios17, &args).unwrap_err().to_string(), message);
        }
    }
}
