//! Packages as others make them: an image classifier's first layers, and samples for it.

use std::collections::HashMap;
use std::path::Path;

use anemeter::atomic::write_file;
use anemeter::mil::verify::verify;
use anemeter::mil::{
    Builder, ColorSpace, Dim, FeatureType, Function, ImageSizes, ImageType, Model, Opset, TensorType,
};
use anemeter::package::{self, WriteOptions};
use anemeter::tensor::DType;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::fixtures::{numbers, weight};

/// Convolutions of `[1, 3, size, size]` images, `layers` of them.
pub(crate) fn convolutions(name: &str, size: usize, layers: u32) -> Function {
    let mut main = Builder::new(name, Opset::Ios16);
    let mut x = main.input("image", TensorType::fixed(DType::F16, &[1, 3, size, size]));
    for layer in 0..layers {
        let channels = if layer == 0 { 3 } else { 8 };
        let kernel = main.constant(&format!("kernel_{layer}"), weight(&[8, channels, 3, 3], layer));
        let conv = main.op("conv").arg("x", x).arg("weight", kernel).arg("pad_type", "same");
        x = conv.named(&format!("conv_{layer}")).push().unwrap();
        x = main.op("relu").arg("x", x).named(&format!("relu_{layer}")).push().unwrap();
    }
    main.finish(&[x])
}

/// Convolutions of images of 16 x 8 and 32 x 16 pixels, to eight scores.
pub(crate) fn of_images(color: ColorSpace) -> Model {
    let mut main = Builder::new("main", Opset::Ios16);
    let ty = TensorType::new(DType::F32, vec![1usize.into(), 3usize.into(), Dim::Unknown, Dim::Unknown]);
    let image = main.input("image", ty);
    let scaled = main.op("mul").arg("x", image).arg("y", 1.0f32 / 255.0).named("scaled").push().unwrap();
    let half = main.op("cast").arg("x", scaled).arg("dtype", "fp16").named("half").push().unwrap();
    let kernel = main.constant("kernel", weight(&[8, 3, 3, 3], 1));
    let conv = main.op("conv").arg("x", half).arg("weight", kernel).arg("pad_type", "same");
    let conv = conv.named("conv").push().unwrap();
    let scores = main.op("reduce_mean").arg("x", conv).arg("axes", [2, 3]).arg("keep_dims", false);
    let scores = scores.named("scores").push().unwrap();
    let mut model = Model::single(main.finish(&[scores]));
    let sizes = ImageSizes::Enumerated(vec![(16, 8), (32, 16)]);
    let image = ImageType { width: 16, height: 8, color, sizes };
    model.interface_mut("main").unwrap().inputs[0].ty = FeatureType::Image(image);
    model
}

/// Writes images of these heights and widths as `image.0`, `image.1` and so on: pixels, row by row.
pub(crate) fn write_pixels(path: &Path, sizes: &[[usize; 2]]) {
    let images: Vec<Vec<u8>> = sizes.iter().map(|size| pixels(*size)).collect();
    let views = sizes.iter().zip(&images).enumerate().map(|(number, (&[height, width], bytes))| {
        let view = TensorView::new(Dtype::U8, vec![height, width, 3], bytes).unwrap();
        (format!("image.{number}"), view)
    });
    let stored = safetensors::serialize(views, None::<HashMap<String, String>>).unwrap();
    write_file(path, &stored).unwrap();
}

/// Pixels of three different channels.
pub(crate) fn pixels([height, width]: [usize; 2]) -> Vec<u8> {
    (0..height * width * 3).map(|at| (at * 37 % 256 / (at % 3 + 1)) as u8).collect()
}

/// Writes a model as a package.
pub(crate) fn write(path: &Path, model: Model) {
    package::write(&verify(model).unwrap(), path, WriteOptions::default()).unwrap();
}

/// `resnet.mlpackage` and `images.safetensors`.
pub(crate) fn write_with_samples(folder: &Path) {
    write(&folder.join("resnet.mlpackage"), Model::single(convolutions("main", 16, 2)));
    write_samples(&folder.join("images.safetensors"), "image", &[&[1, 3, 16, 16], &[1, 3, 16, 16]]);
}

/// Writes samples of an input as `input.0`, `input.1` and so on.
pub(crate) fn write_samples(path: &Path, input: &str, shapes: &[&[usize]]) {
    let samples = shapes.iter().enumerate().map(|(seed, shape)| {
        let values = numbers(shape.iter().product(), seed as u32);
        (*shape, values.iter().map(|value| value.to_f32()).collect())
    });
    write_values(path, input, &samples.collect::<Vec<_>>());
}

/// Writes samples of an input as `input.0`, `input.1` and so on, with these values.
pub(crate) fn write_values(path: &Path, input: &str, samples: &[(&[usize], Vec<f32>)]) {
    let views = samples.iter().enumerate().map(|(number, (shape, values))| {
        let view = TensorView::new(Dtype::F32, shape.to_vec(), bytemuck::cast_slice(values)).unwrap();
        (format!("{input}.{number}"), view)
    });
    let stored = safetensors::serialize(views, None::<HashMap<String, String>>).unwrap();
    write_file(path, &stored).unwrap();
}
