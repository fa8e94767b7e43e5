//! Image inputs: 8-bit pixels, row by row, become the `[1, channels, height, width]` tensor a program takes.

use crate::RuntimeError;
use crate::images::pixel_size;
use anemeter_kernels::convert;
use anemeter_kernels::tensor::{DType, Tensor, TensorView};
use anemeter_mil::{ColorSpace, FeatureType, ImageType, Interface};

/// The images among the inputs, converted. Inputs that are tensors already are left alone.
pub(super) fn convert(
    interface: &Interface,
    inputs: &[(&str, TensorView<'_>)],
) -> Result<Vec<(String, Tensor)>, RuntimeError> {
    let mut converted = Vec::new();
    for feature in &interface.inputs {
        let FeatureType::Image(image) = &feature.ty else { continue };
        let Some((_, view)) = inputs.iter().find(|(name, _)| *name == feature.name) else { continue };
        if view.dtype() == DType::U8 {
            let tensor = planes(image, view).map_err(|problem| RuntimeError::Inputs {
                function: interface.function.clone(),
                problems: vec![format!("`{}` {problem}", feature.name)],
            })?;
            converted.push((feature.name.clone(), tensor));
        }
    }
    Ok(converted)
}

fn planes(image: &ImageType, pixels: &TensorView<'_>) -> Result<Tensor, String> {
    let order: &[usize] = match image.color {
        ColorSpace::Rgb => &[0, 1, 2],
        ColorSpace::Bgr => &[2, 1, 0],
        ColorSpace::Grayscale | ColorSpace::GrayscaleFloat16 => &[0],
    };
    let [height, width] = pixel_size(image, pixels)?;
    let bytes = pixels.bytes();
    let values: Vec<f32> = order
        .iter()
        .flat_map(|&channel| bytes.iter().skip(channel).step_by(order.len()).map(|&b| f32::from(b)))
        .collect();
    let dtype = if image.color == ColorSpace::GrayscaleFloat16 { DType::F16 } else { DType::F32 };
    convert::from_f32(dtype, &[1, order.len(), height, width], &values).map_err(|e| e.to_string())
}
