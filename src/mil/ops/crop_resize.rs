//! `crop_resize`: boxes of images, brought to one size by bilinear interpolation.
//!
//! A box is the interval between two positions on each axis; it is sampled like a `resize_bilinear` of an axis
//! of that length. Samples outside the image have the padding value. A box whose end lies before its start is
//! read backwards, except with `UNALIGN_CORNERS`, where Core ML samples the whole axis.

use super::choice::choice;
use super::prelude::*;
use super::resize::{sampling_mode, size};
use anemeter_kernels::convert;
use anemeter_kernels::resample::{Grid, Padding, Sample, Sampler, Sampling, Tap};

const X: Param = Param::value("x", FLOAT).group('T');
const ROI: Param = Param::value("roi", FLOAT).group('T');
const BOXES: Param = Param::value("boxes", &[DType::F16, DType::F32, DType::U16]);
const BOX_INDICES: Param = Param::value("box_indices", &[DType::U16, DType::I32]).optional();
const HEIGHT: Param = Param::constant("target_height", INT).or_int(1);
const WIDTH: Param = Param::constant("target_width", INT).or_int(1);
const NORMALIZED: Param = Param::constant("normalized_coordinates", BOOL).or_bool(false);
const SCALE: Param = Param::constant("spatial_scale", &[DType::F32]).or_float(1.0);
const MODE: Param = Param::constant("box_coordinate_mode", TEXT).or_text("CORNERS_HEIGHT_FIRST");
const SAMPLING: Param = Param::constant("sampling_mode", TEXT).or_text("DEFAULT");
const PAD: Param = Param::constant("pad_value", FLOAT).group('T').or_float(0.0);

pub(super) const OPS: &[OpDef] = &[
    regions(Ios15).takes(&[X, ROI, HEIGHT, WIDTH, NORMALIZED, SCALE, MODE, SAMPLING]),
    regions(Ios16).takes(&[X, ROI, HEIGHT, WIDTH, NORMALIZED, SCALE, MODE, SAMPLING, PAD]),
    define(OpClass::Elementwise, "crop_resize", Ios17, infer_boxes, eval).takes(WITH_BOXES),
];

const WITH_BOXES: &[Param] = &[X, BOXES, BOX_INDICES, HEIGHT, WIDTH, NORMALIZED, SCALE, MODE, SAMPLING, PAD];

const fn regions(since: Opset) -> OpDef {
    define(OpClass::Elementwise, "crop_resize", since, infer_regions, eval)
}

/// Which numbers of a box are its start and end, or its centre and size; heights first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BoxMode {
    height_first: bool,
    centred: bool,
}

fn box_mode(call: &Call<'_>) -> Result<BoxMode> {
    let modes = [
        ("CORNERS_HEIGHT_FIRST", BoxMode { height_first: true, centred: false }),
        ("CORNERS_WIDTH_FIRST", BoxMode { height_first: false, centred: false }),
        ("CENTER_SIZE_HEIGHT_FIRST", BoxMode { height_first: true, centred: true }),
        ("CENTER_SIZE_WIDTH_FIRST", BoxMode { height_first: false, centred: true }),
    ];
    choice(call, "box_coordinate_mode", &modes)
}

/// Checks what the generations share and gives the dimensions of the images, unless their rank is unknown.
fn images<'a>(call: &Call<'a>) -> Result<Option<&'a [Dim]>> {
    box_mode(call)?;
    sampling_mode(call)?;
    let x = call.ty("x")?;
    match x.rank() {
        None => Ok(None),
        Some(4) => Ok(Some(&x.shape)),
        Some(rank) => refuse!("`x` has rank {rank}, should have 4"),
    }
}

fn infer_regions(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, roi) = (call.ty("x")?, call.ty("roi")?);
    let shape = images(call)?;
    let (batch, channels) = shape.map_or((Dim::Unknown, Dim::Unknown), |dims| (dims[0], dims[1]));
    let one = |dim: &Dim| matches!(dim, Dim::Fixed(1) | Dim::Unknown);
    let (count, repeats) = match &roi.shape[..] {
        _ if roi.rank().is_none() => (Dim::Unknown, Dim::Unknown),
        [count, rest @ ..] if rest.len() == 4 && [0, 2, 3].iter().all(|&i| one(&rest[i])) => match rest[1] {
            Dim::Fixed(4) => (*count, batch),
            Dim::Fixed(5) => (*count, Dim::Fixed(1)),
            Dim::Unknown => (*count, Dim::Unknown),
            _ => refuse!("`roi` is a {roi}, should hold 4 or 5 numbers per box"),
        },
        _ => refuse!("`roi` is a {roi}, should be [boxes, 1, 4 or 5, 1, 1]"),
    };
    let dims = vec![count, repeats, channels, size(call, "target_height")?, size(call, "target_width")?];
    Ok(dims::one(x.dtype, dims))
}

fn infer_boxes(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, boxes) = (call.ty("x")?, call.ty("boxes")?);
    let shape = images(call)?;
    let (batch, channels) = shape.map_or((Dim::Unknown, Dim::Unknown), |dims| (dims[0], dims[1]));
    let count = match boxes.shape[..] {
        _ if boxes.rank().is_none() => Dim::Unknown,
        [count, Dim::Fixed(4) | Dim::Unknown] => count,
        _ => refuse!("`boxes` is a {boxes}, should be [boxes, 4]"),
    };
    if call.bool("normalized_coordinates")? && !boxes.dtype.is_float() {
        refuse!("`boxes` is {}, normalized coordinates are not integers", boxes.dtype);
    }
    match (call.opt_ty("box_indices")?, count, batch) {
        (None, Dim::Fixed(count), Dim::Fixed(batch)) if count > batch => {
            refuse!("{batch} images for {count} `boxes` without `box_indices`");
        }
        (Some(indices), _, _) => super::indexing::agree("box_indices", &indices.shape, &[count])?,
        _ => {}
    }
    let dims = vec![count, channels, size(call, "target_height")?, size(call, "target_width")?];
    Ok(dims::one(x.dtype, dims))
}

/// The boxes of a call and which image each block of the output is cut from.
#[derive(Clone, Copy)]
struct Boxes<'a> {
    values: TensorView<'a>,
    /// Numbers per box: with 5, the first is the image.
    stride: usize,
    indices: Option<TensorView<'a>>,
    images: usize,
    /// Blocks per box, one per image.
    repeats: usize,
}

impl<'a> Boxes<'a> {
    fn of(call: &Call<'a>, images: usize) -> Result<Boxes<'a>> {
        if call.opset() >= Ios17 {
            let (values, indices) = (call.tensor("boxes")?, call.opt_tensor("box_indices")?);
            return Ok(Boxes { values, stride: 4, indices, images, repeats: 1 });
        }
        let values = call.tensor("roi")?;
        let stride = values.shape()[2];
        Ok(Boxes { values, stride, indices: None, images, repeats: if stride == 4 { images } else { 1 } })
    }

    fn count(&self) -> usize {
        self.values.shape()[0] * self.repeats
    }

    /// The four numbers of the box that block `n` shows.
    fn numbers(&self, n: usize) -> [f64; 4] {
        let mut numbers = [0.0; 4];
        let end = (n / self.repeats + 1) * self.stride;
        convert::to_f32(&self.values, end - 4..end, &mut numbers);
        numbers.map(f64::from)
    }

    /// The image that block `n` is cut from.
    fn image(&self, n: usize) -> Result<usize> {
        let mut index = [0.0];
        match self.indices {
            _ if self.stride == 5 => convert::to_f32(&self.values, n * 5..n * 5 + 1, &mut index),
            Some(indices) => convert::to_f32(&indices, n..n + 1, &mut index),
            None => return Ok(n % self.images),
        }
        let image = index[0];
        if image >= 0.0 && image < self.images as f32 {
            Ok(image as usize)
        } else {
            Err(op_error!("box {n} is of image {image}, there are {}", self.images))
        }
    }
}

/// The samples of a box along one axis of the image.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: f64,
    end: f64,
    grid: Grid,
    size: usize,
}

impl Span {
    fn new(sampling: Sampling, [start, end]: [f64; 2], size: usize, output: usize) -> Span {
        let whole = sampling == Sampling::UnalignCorners && end < start;
        let (start, end) = if whole { (0.0, size as f64 - 1.0) } else { (start, end) };
        Span { start, end, grid: Grid::new(sampling, (end - start).abs(), output), size }
    }

    fn tap(&self, i: usize) -> Tap {
        let along = self.grid.position(i);
        let length = (self.end - self.start).abs();
        let position =
            if along == length { self.end } else { self.start + along.copysign(self.end - self.start) };
        if (0.0..=self.size as f64 - 1.0).contains(&position) {
            Tap::linear(position, self.size, Padding::Border)
        } else {
            Tap::OUTSIDE
        }
    }
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    match call.ty("x")?.dtype {
        DType::F32 => cut::<f32>(call, outputs),
        _ => cut::<f16>(call, outputs),
    }
}

fn cut<T: Element + Sample>(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, out) = (call.tensor("x")?, outputs.tensor(0)?);
    done_if!(shape::element_count(out.shape()) == Some(0));
    let (&[images, channels, height, width], &[.., rows, columns]) = (x.shape(), out.shape()) else {
        refuse!("`x` has rank {}, should have 4", x.rank())
    };
    refuse_if!(x.is_empty(), "`x` is {:?}, there is nothing to cut from", x.shape());
    let boxes = Boxes::of(call, images)?;
    for n in 0..boxes.count() {
        boxes.image(n)?;
    }
    let (mode, sampling) = (box_mode(call)?, sampling_mode(call)?);
    let scale = f64::from(call.float("spatial_scale")?);
    let normalized = call.bool("normalized_coordinates")?;
    let interval = |[a, b]: [f64; 2], size: usize| {
        let unit = if normalized { scale * (size as f64 - 1.0) } else { scale };
        let (start, end) = if mode.centred { (a - b / 2.0, a + b / 2.0) } else { (a, b) };
        [start * unit, end * unit]
    };
    let sampler = Sampler {
        channels,
        height,
        width,
        points: rows * columns,
        around: if call.opset() >= Ios16 { call.float("pad_value")? } else { 0.0 },
        round_steps: call.rounds(x.dtype()),
    };
    sampler.run(x.slice::<T>()?, out.slice::<T>()?, |n| {
        let [a, b, c, d] = boxes.numbers(n);
        let (down, across) = if mode.height_first { ([a, c], [b, d]) } else { ([b, d], [a, c]) };
        let down = Span::new(sampling, interval(down, height), height, rows);
        let across = Span::new(sampling, interval(across, width), width, columns);
        (boxes.image(n).unwrap_or(0), move |point| (down.tap(point / columns), across.tap(point % columns)))
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[2, 1, 4, 4]`: 1 to 16, then 101 to 116.
    fn pictures() -> (&'static str, Tensor) {
        let values: Vec<f32> = (1..=16).chain(101..=116).map(|i| i as f32).collect();
        ("x", tensor(&[2, 1, 4, 4], &values))
    }

    fn target(size: i32) -> [(&'static str, Tensor); 2] {
        [("target_height", Tensor::scalar(size)), ("target_width", Tensor::scalar(size))]
    }

    #[test]
    fn modes_agree_on_a_box() {
        for (mode, numbers) in [
            ("CORNERS_HEIGHT_FIRST", [1.0f32, 0.0, 2.0, 3.0]),
            ("CORNERS_WIDTH_FIRST", [0.0, 1.0, 3.0, 2.0]),
            ("CENTER_SIZE_HEIGHT_FIRST", [1.5, 1.5, 1.0, 3.0]),
            ("CENTER_SIZE_WIDTH_FIRST", [1.5, 1.5, 3.0, 1.0]),
        ] {
            let mut args =
                vec![pictures(), text("box_coordinate_mode", mode), text("sampling_mode", "ALIGN_CORNERS")];
            args.push(("boxes", tensor(&[1, 4], &numbers)));
            args.push(("box_indices", tensor(&[1], &[1])));
            args.extend(target(2));
            let out = run("crop_resize", Ios17, &args).unwrap();
            assert_eq!(out[0].shape(), [1, 1, 2, 2]);
            assert_eq!(out[0].view().slice::<f32>().unwrap(), [105.0, 108.0, 109.0, 112.0], "{mode}");
        }
    }

    #[test]
    fn regions_apply_to_every_image_or_to_one() {
        let mut args = vec![pictures(), ("roi", tensor(&[1, 1, 4, 1, 1], &[2.0f32, 2.0, 1.0, 1.0]))];
        args.extend(target(2));
        args.push(text("sampling_mode", "STRICT_ALIGN_CORNERS"));
        let out = run("crop_resize", Ios15, &args).unwrap();
        assert_eq!(out[0].shape(), [1, 2, 1, 2, 2]);
        let expected = [11.0, 10.0, 7.0, 6.0, 111.0, 110.0, 107.0, 106.0];
        assert_eq!(out[0].view().slice::<f32>().unwrap(), expected);

        args[1].1 = tensor(&[1, 1, 5, 1, 1], &[1.0f32, 2.0, 2.0, 1.0, 1.0]);
        gives::<f32>(run("crop_resize", Ios16, &args), &[1, 1, 1, 2, 2], &expected[4..]);
    }

    #[test]
    fn samples_outside_the_image_are_padding() {
        let mut args =
            vec![pictures(), ("pad_value", Tensor::scalar(10.0f32)), text("sampling_mode", "ALIGN_CORNERS")];
        args.push(("boxes", tensor(&[1, 4], &[0.5f32, 1.0, -0.5, 2.0])));
        args.push(("normalized_coordinates", Tensor::from_bool(true)));
        args.push(("spatial_scale", Tensor::scalar(0.5f32)));
        args.extend(target(2));
        assert_eq!(output::<f32>(run("crop_resize", Ios17, &args)), [5.5, 7.0, 10.0, 10.0]);
    }

    #[test]
    fn sampling_modes_divide_the_box() {
        for (mode, expected) in [
            ("DEFAULT", [1.0, 2.5]),
            ("OFFSET_CORNERS", [1.5, 2.5]),
            ("UNALIGN_CORNERS", [1.25, 2.75]),
            ("STRICT_ALIGN_CORNERS", [1.0, 3.0]),
        ] {
            let mut args = vec![pictures(), text("sampling_mode", mode)];
            args.push(("boxes", tensor(&[1, 4], &[0u16, 0, 0, 2])));
            args.push(("target_width", Tensor::scalar(2)));
            assert_eq!(output::<f32>(run("crop_resize", Ios17, &args)), expected, "{mode}");
        }
    }

    #[test]
    fn bad_calls_are_named() {
        let boxes = |n: usize| ("boxes", tensor(&[n, 4], &vec![0.0f32; n * 4]));
        for (extra, message) in [
            (vec![boxes(3)], "2 images for 3 `boxes` without `box_indices`"),
            (vec![boxes(1), ("box_indices", tensor(&[1], &[2]))], "box 0 is of image 2, there are 2"),
            (
                vec![boxes(1), text("sampling_mode", "NONE")],
                "`sampling_mode` is `NONE`, not one of `DEFAULT`, `STRICT_ALIGN_CORNERS`, `ALIGN_CORNERS`, \
                 `OFFSET_CORNERS`, `UNALIGN_CORNERS`",
            ),
        ] {
            let args = [vec![pictures()], extra].concat();
            refused(run("crop_resize", Ios17, &args), message);
        }
    }
}
