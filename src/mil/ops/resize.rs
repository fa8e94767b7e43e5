//! `resize`, `resize_bilinear`, `resize_nearest_neighbor`, `upsample_bilinear` and
//! `upsample_nearest_neighbor`: the trailing dimensions of a tensor at another size.
//!
//! The nearest-neighbour operations differ in which input element an output element repeats: upsampling takes
//! the one its start lies in, resizing the one its centre lies in. `resize` does the latter by default and
//! rounds the positions of any other sampling mode. Scale factors only determine sizes; positions follow from
//! the sizes.

use bytemuck::cast_slice_mut;
use half::slice::HalfFloatSliceExt;
use smallvec::SmallVec;

use super::choice::choice;
use super::prelude::*;
use anemeter_kernels::convert;
use anemeter_kernels::resample::{self, Axis, Grid, Nearest, Sampling};

const X: Param = Param::value("x", FLOAT);
const SCALE: &[DType] = &[DType::F32, DType::I32];
const SCALE_HEIGHT: Param = Param::constant("scale_factor_height", SCALE).group('U').or_float(1.0);
const SCALE_WIDTH: Param = Param::constant("scale_factor_width", SCALE).group('U').or_float(1.0);
const ALIGN: Param = Param::constant("align_corners", BOOL).or_bool(true);
const HALF_PIXEL: Param = Param::constant("half_pixel_centers", BOOL).optional();
const HEIGHT: Param = Param::constant("target_size_height", INT);
const WIDTH: Param = Param::constant("target_size_width", INT);
const SAMPLING: Param = Param::constant("sampling_mode", TEXT).or_text("DEFAULT");

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Elementwise, "upsample_nearest_neighbor", Ios15, infer_scaled, |call, outputs| {
        nearest(call, outputs, 2, |_, _| Nearest::Start)
    })
    .takes(&[X, SCALE_HEIGHT, SCALE_WIDTH]),
    define(OpClass::Elementwise, "resize_nearest_neighbor", Ios15, infer_target, |call, outputs| {
        nearest(call, outputs, 2, |_, _| Nearest::Centre)
    })
    .takes(&[X, HEIGHT, WIDTH]),
    upsample_bilinear(Ios15).takes(&[X, SCALE_HEIGHT, SCALE_WIDTH, ALIGN]),
    upsample_bilinear(Ios16).takes(&[X, SCALE_HEIGHT, SCALE_WIDTH, ALIGN, HALF_PIXEL]),
    define(OpClass::Elementwise, "resize_bilinear", Ios15, infer_bilinear_target, |call, outputs| {
        linear(call, outputs, 2, sampling_mode(call)?)
    })
    .takes(&[X, HEIGHT.or_int(1), WIDTH.or_int(1), SAMPLING]),
    define(OpClass::Elementwise, "resize", Ios17, infer_resize, eval_resize).takes(&[
        Param::value("x", FLOAT_INT),
        Param::value("shape", &[DType::I32, DType::I16, DType::U16, DType::U32]),
        Param::constant("resized_dims", &[DType::U32]),
        Param::constant("interpolation_mode", TEXT).or_text("LINEAR"),
        SAMPLING,
    ]),
];

const fn upsample_bilinear(since: Opset) -> OpDef {
    define(OpClass::Elementwise, "upsample_bilinear", since, infer_scaled, |call, outputs| {
        linear(call, outputs, 2, upsampling(call)?)
    })
}

pub(super) fn sampling_mode(call: &Call<'_>) -> Result<Sampling> {
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
pub(super) fn size(call: &Call<'_>, name: &str) -> Result<Dim> {
    let given = call.int(name)?;
    u64::try_from(given)
        .map(Dim::Fixed)
        .map_err(|_| op_error!("`{name}` is {given}, a size cannot be negative"))
}

fn upsampling(call: &Call<'_>) -> Result<Sampling> {
    let align = call.bool("align_corners")?;
    let given = call.opset() >= Ios16 && call.has("half_pixel_centers");
    let half_pixel = if given { call.bool("half_pixel_centers")? } else { !align };
    Ok(match (align, half_pixel) {
        (true, false) => Sampling::StrictAlignCorners,
        (true, true) => Sampling::AlignCornersHalfPixel,
        (false, false) => Sampling::Default,
        (false, true) => Sampling::UnalignCorners,
    })
}

/// The type of `x` with its last two dimensions replaced by what `resized` makes of them.
fn infer_image(call: &Call<'_>, resized: impl Fn(Dim, Dim) -> Result<(Dim, Dim)>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let mut dims = x.shape.clone();
    match (x.rank(), &mut dims[..]) {
        (None, _) => {}
        (Some(_), [_, .., height, width]) => (*height, *width) = resized(*height, *width)?,
        (Some(rank), _) => refuse!("`x` has rank {rank}, should have at least 3"),
    }
    finish(x, dims)
}

/// An output type, unless it would have to be made of nothing.
fn finish(x: &TensorType, dims: Vec<Dim>) -> Result<Vec<Type>> {
    for (axis, (from, to)) in x.shape.iter().zip(&dims).enumerate() {
        if *from == Dim::Fixed(0) && matches!(to, Dim::Fixed(1..)) {
            refuse!("dimension {axis} of `x` is empty, cannot be resized to {to}");
        }
    }
    Ok(dims::one(x.dtype, dims))
}

fn infer_scaled(call: &Call<'_>) -> Result<Vec<Type>> {
    infer_image(call, |height, width| {
        Ok((scaled(call, "scale_factor_height", height)?, scaled(call, "scale_factor_width", width)?))
    })
}

fn scaled(call: &Call<'_>, name: &str, dim: Dim) -> Result<Dim> {
    let factor = call.float(name)?;
    let whole = call.opt_ty(name)?.is_some_and(|ty| ty.dtype == DType::I32);
    refuse_if!(!(factor.is_finite() && factor >= 0.0), "`{name}` is {factor}, cannot scale by that");
    let Dim::Fixed(size) = dim else { return Ok(dim) };
    Ok(Dim::Fixed(if whole {
        size.saturating_mul(call.int(name)?.unsigned_abs())
    } else {
        (size as f32 * factor).floor() as u64
    }))
}

fn infer_target(call: &Call<'_>) -> Result<Vec<Type>> {
    infer_image(call, |_, _| Ok((size(call, "target_size_height")?, size(call, "target_size_width")?)))
}

fn infer_bilinear_target(call: &Call<'_>) -> Result<Vec<Type>> {
    sampling_mode(call)?;
    infer_target(call)
}

fn infer_resize(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, target) = (call.ty("x")?, call.ty("shape")?);
    interpolation_mode(call)?;
    sampling_mode(call)?;
    refuse_if!(target.rank().is_some_and(|rank| rank != 1), "`shape` is a {target}, should have rank 1");
    let Some(rank) = x.rank() else { return Ok(vec![x.clone().into()]) };
    let sizes = call.known_ints("shape")?;
    let length = sizes.as_ref().map(SmallVec::len).or(target.shape[0].size()).unwrap_or(rank);
    let resized = resized_dims(call)?;
    if resized > length || length > rank {
        let text = format!("`resized_dims` is {resized}, `shape` has {length} elements and `x` rank {rank}");
        refuse!("{text}, should not decrease");
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
            Err(_) => refuse!("`shape` is {sizes:?}, a size cannot be negative"),
        }
    }
    finish(x, dims)
}

fn resized_dims(call: &Call<'_>) -> Result<usize> {
    let given = call.int("resized_dims")?;
    usize::try_from(given).map_err(|_| op_error!("`resized_dims` is {given}, cannot be negative"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interpolation {
    Linear,
    Nearest,
}

fn interpolation_mode(call: &Call<'_>) -> Result<Interpolation> {
    let modes = [("LINEAR", Interpolation::Linear), ("NEAREST_NEIGHBOR", Interpolation::Nearest)];
    choice(call, "interpolation_mode", &modes)
}

fn eval_resize(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
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
fn linear(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, axes: usize, sampling: Sampling) -> Result {
    let x = call.tensor("x")?;
    let (out, scratch) = outputs.with_scratch(0)?;
    let (from, to) = (x.shape(), out.shape());
    let elements = shape::element_count(to).unwrap_or(0);
    done_if!(elements == 0);
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
fn store(values: &[f32], out: TensorMut<'_>) -> Result {
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
) -> Result {
    let x = call.tensor("x")?;
    let (out, scratch) = outputs.with_scratch(0)?;
    let (from, to) = (x.shape(), out.shape());
    done_if!(shape::element_count(to) == Some(0));
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
    use super::*;

    type Args<'a> = &'a [(&'a str, Tensor)];

    /// Checks the shape and, to three decimal places, the values of a result.
    #[track_caller]
    fn resizes(op: &str, opset: Opset, x: &Tensor, args: Args<'_>, (shape, expected): (&[usize], &[f32])) {
        let args = [&[("x", x.clone())], args].concat();
        let out = run(op, opset, &args).unwrap().remove(0);
        let mut values = vec![0.0; out.view().len()];
        convert::to_f32(&out.view(), 0..values.len(), &mut values);
        let rounded: Vec<_> = values.iter().map(|x| (x * 1000.0).round() / 1000.0).collect();
        assert_eq!((out.shape(), &rounded[..]), (shape, expected));
    }

    #[test]
    fn bilinear_modes() {
        let x = tensor(&[1, 1, 1, 2], &[1.0f32, 2.0]);
        let sizes = [("scale_factor_height", Tensor::scalar(1)), ("scale_factor_width", Tensor::scalar(2))];
        for (align, half_pixel, expected) in [
            (true, None, [1.0, 1.333, 1.667, 2.0]),
            (false, None, [1.0, 1.25, 1.75, 2.0]),
            (false, Some(false), [1.0, 1.5, 2.0, 2.0]),
            (true, Some(true), [1.0, 1.0, 1.333, 1.667]),
        ] {
            let mut args = sizes.to_vec();
            args.push(("align_corners", Tensor::from_bool(align)));
            args.extend(half_pixel.map(|half| ("half_pixel_centers", Tensor::from_bool(half))));
            resizes("upsample_bilinear", Ios16, &x, &args, (&[1, 1, 1, 4], &expected));
        }
    }

    #[test]
    fn both_dimensions_shrink_and_grow() {
        let values: Vec<f16> = (1..=8u8).map(|i| f16::from_f32(f32::from(i))).collect();
        let x = tensor(&[1, 2, 4], &values);
        let args = [
            ("target_size_height", Tensor::scalar(3)),
            ("target_size_width", Tensor::scalar(2)),
            text("sampling_mode", "STRICT_ALIGN_CORNERS"),
        ];
        resizes("resize_bilinear", Ios15, &x, &args, (&[1, 3, 2], &[1.0, 4.0, 3.0, 6.0, 5.0, 8.0]));
    }

    #[test]
    fn fractional_scales_round_sizes_down() {
        let x = tensor(&[1, 1, 3], &[1.5f32, -2.5, 3.5]);
        let args = [
            ("scale_factor_height", Tensor::scalar(2.5f32)),
            ("scale_factor_width", Tensor::scalar(0.67f32)),
        ];
        resizes("upsample_nearest_neighbor", Ios15, &x, &args, (&[1, 2, 2], &[1.5, -2.5, 1.5, -2.5]));
    }

    #[test]
    fn resize_takes_any_number_of_dimensions() {
        let x = tensor(&[2, 1, 2], &[10, 20, 30, 40]);
        let shape = |sizes: &[i16]| ("shape", tensor(&[sizes.len()], sizes));
        let dims = |n: u32| ("resized_dims", Tensor::scalar(n));
        let (low, high) = ([10.0, 20.0, 20.0], [30.0, 40.0, 40.0]);
        let (corners, nearest) =
            (text("sampling_mode", "ALIGN_CORNERS"), text("interpolation_mode", "NEAREST_NEIGHBOR"));
        for (args, expected_shape, expected) in [
            (vec![shape(&[9, 0]), dims(1)], [2, 1, 2], vec![10.0, 20.0, 30.0, 40.0]),
            (vec![shape(&[3, 0, 1]), dims(3), corners], [3, 1, 1], vec![15.0, 25.0, 35.0]),
            (vec![shape(&[2, 3]), dims(2), nearest], [2, 2, 3], [low, low, high, high].concat()),
        ] {
            resizes("resize", Ios17, &x, &args, (&expected_shape, &expected));
        }
    }

    #[test]
    fn bad_calls_are_named() {
        let x = || ("x", tensor(&[1, 1, 2], &[0.0f32; 2]));
        let dims = ("resized_dims", Tensor::scalar(2u32));
        let size = |name: &'static str, size: i32| (name, Tensor::scalar(size));
        for (op, args, message) in [
            (
                "resize_nearest_neighbor",
                vec![x(), size("target_size_height", -1), size("target_size_width", 1)],
                "`target_size_height` is -1, a size cannot be negative",
            ),
            (
                "upsample_bilinear",
                vec![x(), ("scale_factor_width", Tensor::scalar(f32::NAN))],
                "`scale_factor_width` is NaN, cannot scale by that",
            ),
            (
                "resize",
                vec![x(), dims.clone(), ("shape", tensor(&[1], &[3]))],
                "`resized_dims` is 2, `shape` has 1 elements and `x` rank 3, should not decrease",
            ),
            (
                "resize",
                vec![("x", floats(&[1, 0], &[])), dims, ("shape", tensor(&[2], &[3, 3]))],
                "dimension 1 of `x` is empty, cannot be resized to 3",
            ),
        ] {
            refused(run(op, Ios17, &args), message);
        }
    }
}
