//! `resample` and `affine`: images sampled at points that are given one by one or by a linear map.

use super::choice::choice;
use super::indexing::agree;
use super::prelude::*;
use super::resize::size;
use anemeter_kernels::convert;
use anemeter_kernels::resample::{Padding, Sample, Sampler, Tap};

const X: Param = Param::value("x", FLOAT).group('T');
const MATRIX: Param = Param::value("transform_matrix", FLOAT).group('T');
const HEIGHT: Param = Param::constant("output_height", INT);
const WIDTH: Param = Param::constant("output_width", INT);
const SAMPLING: Param = Param::constant("sampling_mode", TEXT);
const PADDING: Param = Param::constant("padding_mode", TEXT);
const VALUE: Param = Param::constant("padding_value", FLOAT).group('T');
const MODE: Param = Param::constant("coordinates_mode", TEXT);
const ALIGN: Param = Param::constant("align_corners", BOOL);

const COORDINATES: &[DType] = &[DType::I32, DType::F32];
const COORDINATES_16: &[DType] = &[DType::I32, DType::F16, DType::F32];
const COORDINATES_17: &[DType] =
    &[DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::F16, DType::F32];

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Elementwise, "resample", Ios15, infer_resample, eval_resample)
        .takes(&params(Param::value("coordinates", COORDINATES))),
    define(OpClass::Elementwise, "resample", Ios16, infer_resample, eval_resample)
        .takes(&params(Param::value("coordinates", COORDINATES_16))),
    define(OpClass::Elementwise, "resample", Ios17, infer_resample, eval_resample)
        .takes(&params(Param::value("coordinates", COORDINATES_17))),
    define(OpClass::Elementwise, "affine", Ios15, infer_affine, eval_affine).takes(AFFINE),
];

const AFFINE: &[Param] = &[X, MATRIX, HEIGHT, WIDTH, SAMPLING, PADDING, VALUE, MODE, ALIGN];

const fn params(coordinates: Param) -> [Param; 7] {
    [X, coordinates, SAMPLING, PADDING, VALUE, MODE, ALIGN]
}

/// How coordinates are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Units {
    Elements,
    MinusOneToOne,
    ZeroToOne,
}

/// How a coordinate becomes a sample of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rule {
    units: Units,
    align_corners: bool,
    linear: bool,
    padding: Padding,
}

impl Rule {
    fn of(call: &Call<'_>) -> Result<Rule> {
        let units = [
            ("unnormalized", Units::Elements),
            ("normalized_minus_one_to_one", Units::MinusOneToOne),
            ("normalized_zero_to_one", Units::ZeroToOne),
        ];
        let paddings = [
            ("constant", Padding::Constant),
            ("border", Padding::Border),
            ("reflection", Padding::Reflection),
            ("symmetric", Padding::Symmetric),
        ];
        Ok(Rule {
            units: choice(call, "coordinates_mode", &units)?,
            align_corners: call.bool("align_corners")?,
            linear: choice(call, "sampling_mode", &[("bilinear", true), ("nearest", false)])?,
            padding: choice(call, "padding_mode", &paddings)?,
        })
    }

    /// The only rule that `affine` knows, but for `align_corners`.
    fn of_affine(call: &Call<'_>) -> Result<Rule> {
        let value = call.float("padding_value")?;
        refuse_if!(value != 0.0, "`padding_value` is {value}, should be 0");
        Ok(Rule {
            units: choice(
                call,
                "coordinates_mode",
                &[("normalized_minus_one_to_one", Units::MinusOneToOne)],
            )?,
            align_corners: call.bool("align_corners")?,
            linear: choice(call, "sampling_mode", &[("bilinear", true)])?,
            padding: choice(call, "padding_mode", &[("constant", Padding::Constant)])?,
        })
    }

    fn tap(&self, coordinate: f64, size: usize) -> Tap {
        let fraction = match self.units {
            Units::Elements => None,
            Units::MinusOneToOne => Some((coordinate + 1.0) / 2.0),
            Units::ZeroToOne => Some(coordinate),
        };
        let position = match fraction {
            None => coordinate,
            Some(fraction) if self.align_corners => fraction * (size as f64 - 1.0),
            Some(fraction) => fraction * size as f64 - 0.5,
        };
        if self.linear {
            Tap::linear(position, size, self.padding)
        } else {
            Tap::nearest(position, size, self.padding)
        }
    }
}

/// The type of `x` with other rows and columns.
fn output(call: &Call<'_>, rows: Dim, columns: Dim) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let (batch, channels) = match x.shape[..] {
        _ if x.rank().is_none() => (Dim::Unknown, Dim::Unknown),
        [batch, channels, _, _] => (batch, channels),
        _ => refuse!("`x` has rank {}, should have 4", x.shape.len()),
    };
    Ok(dims::one(x.dtype, vec![batch, channels, rows, columns]))
}

fn infer_resample(call: &Call<'_>) -> Result<Vec<Type>> {
    Rule::of(call)?;
    call.float("padding_value")?;
    let (x, coordinates) = (call.ty("x")?, call.ty("coordinates")?);
    if coordinates.rank().is_none() {
        return output(call, Dim::Unknown, Dim::Unknown);
    }
    let &[_, rows, columns, Dim::Fixed(2) | Dim::Unknown] = &coordinates.shape[..] else {
        let text = format!("`coordinates` is a {coordinates}, should be [batch, height, width, 2]");
        return Err(OpError::new(text));
    };
    let types = output(call, rows, columns)?;
    if x.rank().is_some() {
        agree("coordinates", &coordinates.shape, &[x.shape[0], rows, columns, Dim::Fixed(2)])?;
    }
    Ok(types)
}

fn infer_affine(call: &Call<'_>) -> Result<Vec<Type>> {
    Rule::of_affine(call)?;
    let (x, matrix) = (call.ty("x")?, call.ty("transform_matrix")?);
    if matrix.rank().is_some() {
        let &[matrices, Dim::Fixed(6) | Dim::Unknown] = &matrix.shape[..] else {
            refuse!("`transform_matrix` is a {matrix}, should be [batch or 1, 6]")
        };
        let batch = x.shape.first().copied().filter(|_| x.rank().is_some() && matrices != Dim::Fixed(1));
        agree("transform_matrix", &matrix.shape, &[batch.unwrap_or(matrices), Dim::Fixed(6)])?;
    }
    output(call, size(call, "output_height")?, size(call, "output_width")?)
}

fn eval_resample(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let coordinates = call.tensor("coordinates")?;
    let points: usize = coordinates.shape()[1..3].iter().product();
    dispatch(call, outputs, Rule::of(call)?, |image| {
        move |point| {
            let mut pair = [0.0; 2];
            let at = (image * points + point) * 2;
            convert::to_f32(&coordinates, at..at + 2, &mut pair);
            pair.map(f64::from)
        }
    })
}

fn eval_affine(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (matrix, rule) = (call.tensor("transform_matrix")?, Rule::of_affine(call)?);
    let &[.., rows, columns] = outputs.tensor(0)?.shape() else {
        refuse!("`affine` gives a tensor of rank 4")
    };
    let shared = matrix.shape()[0] == 1;
    dispatch(call, outputs, rule, |image| {
        let mut numbers = [0.0; 6];
        let at = if shared { 0 } else { image * 6 };
        convert::to_f32(&matrix, at..at + 6, &mut numbers);
        let [a0, a1, a2, b0, b1, b2] = numbers.map(f64::from);
        move |point| {
            let x = normalized(point % columns, columns, rule.align_corners);
            let y = normalized(point / columns, rows, rule.align_corners);
            [a0 * x + a1 * y + a2, b0 * x + b1 * y + b2]
        }
    })
}

/// The coordinate, from -1 to 1, of an element of an axis.
fn normalized(i: usize, size: usize, align_corners: bool) -> f64 {
    match (align_corners, size) {
        (true, 1) => 0.0,
        (true, _) => 2.0 * i as f64 / (size as f64 - 1.0) - 1.0,
        (false, _) => (2.0 * i as f64 + 1.0) / size as f64 - 1.0,
    }
}

/// Samples every image; `points(image)` gives the coordinates, horizontal first, of each point of the output.
fn dispatch<P: Fn(usize) -> [f64; 2]>(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    rule: Rule,
    points: impl Fn(usize) -> P + Sync,
) -> Result {
    match call.ty("x")?.dtype {
        DType::F32 => sample::<f32, P>(call, outputs, rule, points),
        _ => sample::<f16, P>(call, outputs, rule, points),
    }
}

fn sample<T: Element + Sample, P: Fn(usize) -> [f64; 2]>(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    rule: Rule,
    points: impl Fn(usize) -> P + Sync,
) -> Result {
    let (x, out) = (call.tensor("x")?, outputs.tensor(0)?);
    done_if!(shape::element_count(out.shape()) == Some(0));
    let (&[_, channels, height, width], &[.., rows, columns]) = (x.shape(), out.shape()) else {
        refuse!("`x` has rank {}, should have 4", x.rank())
    };
    refuse_if!(x.is_empty(), "`x` is {:?}, there is nothing to sample", x.shape());
    let sampler = Sampler {
        channels,
        height,
        width,
        points: rows * columns,
        around: call.float("padding_value")?,
        round_steps: call.rounds(x.dtype()),
    };
    sampler.run(x.slice::<T>()?, out.slice::<T>()?, |image| {
        let point = points(image);
        (image, move |i| {
            let [x, y] = point(i);
            (rule.tap(y, height), rule.tap(x, width))
        })
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::output;
    use super::*;

    fn modes(sampling: &str, padding: &str, coordinates: &str, align: bool) -> [(&'static str, Tensor); 4] {
        [
            text("sampling_mode", sampling),
            text("padding_mode", padding),
            text("coordinates_mode", coordinates),
            ("align_corners", Tensor::from_bool(align)),
        ]
    }

    fn picture() -> (&'static str, Tensor) {
        ("x", tensor(&[1, 1, 2, 2], &[11.0f32, 22.0, 33.0, 44.0]))
    }

    #[test]
    fn padding_and_coordinate_modes() {
        let points = [-1.0f32, -2.0, -3.7, -1.0, 0.0, 0.0, 3.5, 1.2];
        for (modes, expected) in [
            (modes("bilinear", "constant", "normalized_minus_one_to_one", true), [8.585, 6.17, 27.5, 6.17]),
            (modes("nearest", "border", "unnormalized", false), [11.0, 11.0, 11.0, 44.0]),
            (modes("bilinear", "reflection", "normalized_zero_to_one", true), [22.0, 36.3, 11.0, 34.1]),
            (modes("nearest", "symmetric", "normalized_zero_to_one", false), [22.0, 33.0, 11.0, 33.0]),
            (modes("nearest", "constant", "unnormalized", true), [6.17, 6.17, 11.0, 6.17]),
        ] {
            let mut args = vec![picture(), ("padding_value", Tensor::scalar(6.17f32))];
            args.push(("coordinates", tensor(&[1, 2, 2, 2], &points)));
            args.extend(modes);
            let out = run("resample", Ios16, &args).unwrap();
            let rounded = out[0].view().slice::<f32>().unwrap().iter().map(|x| (x * 1000.0).round() / 1000.0);
            assert_eq!(rounded.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn integer_coordinates_pick_elements_of_every_channel() {
        let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f16::from_f32);
        let mut args = vec![("x", tensor(&[1, 2, 1, 3], &x))];
        args.push(("padding_value", Tensor::scalar(f16::ZERO)));
        args.push(("coordinates", tensor(&[1, 1, 2, 2], &[2u8, 0, 1, 0])));
        args.extend(modes("bilinear", "constant", "unnormalized", false));
        let out = run("resample", Ios17, &args).unwrap();
        assert_eq!(out[0].view().slice::<f16>().unwrap(), [3.0, 2.0, 6.0, 5.0].map(f16::from_f32));
    }

    #[test]
    fn affine_maps_turn_and_shift() {
        for (matrix, align, expected) in [
            ([1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0], true, [11.0, 22.0, 33.0, 44.0]),
            ([0.0, 1.0, 0.0, -1.0, 0.0, 0.0], true, [33.0, 11.0, 44.0, 22.0]),
            ([1.0, 0.0, 2.0, 0.0, 1.0, 0.0], true, [22.0, 0.0, 44.0, 0.0]),
            ([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], false, [22.0, 0.0, 44.0, 0.0]),
        ] {
            let mut args = vec![picture(), ("padding_value", Tensor::scalar(0.0f32))];
            args.push(("transform_matrix", tensor(&[1, 6], &matrix)));
            args.extend([("output_height", Tensor::scalar(2)), ("output_width", Tensor::scalar(2))]);
            args.extend(modes("bilinear", "constant", "normalized_minus_one_to_one", align));
            assert_eq!(output::<f32>(run("affine", Ios15, &args)), expected);
        }
    }

    #[test]
    fn bad_calls_are_named() {
        let mut args = vec![picture(), ("padding_value", Tensor::scalar(0.0f32))];
        args.push(("coordinates", tensor(&[2, 1, 1, 2], &[0i32; 4])));
        args.extend(modes("bilinear", "constant", "unnormalized", false));
        refused(run("resample", Ios15, &args), "`coordinates` is [2, 1, 1, 2], should be [1, 1, 1, 2]");
        args[2].1 = tensor(&[1, 1, 1, 3], &[0i32; 3]);
        let error = run("resample", Ios15, &args).unwrap_err();
        let expected = "`coordinates` is a tensor<int32, [1, 1, 1, 3]>, should be [batch, height, width, 2]";
        assert_eq!(error.to_string(), expected);
    }
}
