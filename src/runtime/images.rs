//! Images as inputs: 8-bit pixels, row by row, and which of them Core ML is given.

use anemeter_kernels::tensor::{DType, TensorView};
use anemeter_mil::{ColorSpace, FeatureType, ImageSizes, ImageType, Interface};

/// Height and width of pixels, if they can be of such an image.
pub(crate) fn pixel_size(image: &ImageType, pixels: &TensorView<'_>) -> Result<[usize; 2], String> {
    let channels = image.color.channels();
    match *pixels.shape() {
        [height, width] if channels == 1 => Ok([height, width]),
        [height, width, found] if found as u64 == channels => Ok([height, width]),
        _ => {
            let channels = if channels == 1 { "" } else { ", 3" };
            Err(format!("has shape {:?}, expected [height, width{channels}] pixels", pixels.shape()))
        }
    }
}

/// The images among the inputs of a function, by name.
pub(crate) fn images(interface: &Interface) -> impl Iterator<Item = (&str, &ImageType)> {
    interface.inputs.iter().filter_map(|feature| match &feature.ty {
        FeatureType::Image(image) => Some((feature.name.as_str(), image)),
        _ => None,
    })
}

/// What a function takes or gives that the `coreml` runtime does not: images as outputs, and images of more than 8 bits.
pub fn images_beyond_core_ml(interface: &Interface) -> Vec<String> {
    let inputs = images(interface).filter(|(_, image)| image.color == ColorSpace::GrayscaleFloat16);
    let inputs = inputs.map(|(name, _)| {
        let taken = "the coreml runtime takes images of 8-bit RGB, BGR or gray pixels";
        format!("the input `{}` is a grayscale image of float16, and {taken}", name.escape_debug())
    });
    let outputs = interface.outputs.iter().filter(|of| matches!(of.ty, FeatureType::Image(_)));
    let outputs = outputs.map(|of| {
        format!("the output `{}` is an image, and the coreml runtime gives no images", of.name.escape_debug())
    });
    inputs.chain(outputs).collect()
}

/// What keeps the `coreml` runtime from giving Core ML a tensor as an image; completes the name of the input.
pub fn image_problem(image: &ImageType, given: &TensorView<'_>) -> Option<String> {
    if given.dtype() != DType::U8 {
        let channels = if image.color.channels() == 1 { "" } else { ", 3" };
        let found = format!("is {} {:?}", given.dtype(), given.shape());
        return Some(format!(
            "{found}, expected the pixels of an image, {} [height, width{channels}]",
            DType::U8
        ));
    }
    let [height, width] = match pixel_size(image, given) {
        Ok(size) => size.map(|size| size as u64),
        Err(problem) => return Some(problem),
    };
    let is_refused = !image.allows(height, width);
    is_refused
        .then(|| format!("is an image of {height}x{width}, height by width; allowed is {}", sizes(image)))
}

/// The sizes that an image may have, height by width.
fn sizes(image: &ImageType) -> String {
    let bounds = |(low, high): (u64, Option<u64>)| {
        format!("{low} to {}", high.map_or_else(|| "any".to_owned(), |high| high.to_string()))
    };
    match &image.sizes {
        ImageSizes::Enumerated(sizes) if !sizes.is_empty() => {
            let sizes: Vec<_> = sizes.iter().map(|(width, height)| format!("{height}x{width}")).collect();
            sizes.join(", ")
        }
        ImageSizes::Range { width, height } => {
            format!("a height of {} and a width of {}", bounds(*height), bounds(*width))
        }
        _ => format!("{}x{}", image.height, image.width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::Tensor;
    use anemeter_mil::Feature;

    fn image(color: ColorSpace, sizes: ImageSizes) -> ImageType {
        ImageType { width: 3, height: 2, color, sizes }
    }

    fn problem(image: &ImageType, tensor: &Tensor) -> String {
        image_problem(image, &tensor.view()).unwrap_or_default()
    }

    fn pixels(shape: &[usize]) -> Tensor {
        Tensor::from_slice(shape, &vec![7u8; shape.iter().product()]).unwrap()
    }

    #[test]
    fn pixels_are_of_the_type_and_a_size_that_is_allowed() {
        let rgb = image(ColorSpace::Rgb, ImageSizes::Fixed);
        assert_eq!(problem(&rgb, &pixels(&[2, 3, 3])), "");
        insta::assert_snapshot!(
            problem(&rgb, &Tensor::from_slice(&[1, 3, 2, 3], &[0f32; 18]).unwrap()),
            @"is fp32 [1, 3, 2, 3], expected the pixels of an image, uint8 [height, width, 3]"
        );
        insta::assert_snapshot!(
            problem(&rgb, &pixels(&[2, 3])),
            @"has shape [2, 3], expected [height, width, 3] pixels"
        );
        insta::assert_snapshot!(
            problem(&rgb, &pixels(&[3, 2, 3])),
            @"is an image of 3x2, height by width; allowed is 2x3"
        );
        let gray = image(ColorSpace::Grayscale, ImageSizes::Enumerated(vec![(3, 2), (6, 4)]));
        for shape in [&[2, 3][..], &[4, 6], &[4, 6, 1]] {
            assert_eq!(problem(&gray, &pixels(shape)), "");
        }
        insta::assert_snapshot!(
            problem(&gray, &pixels(&[6, 4])),
            @"is an image of 6x4, height by width; allowed is 2x3, 4x6"
        );
        let range = image(ColorSpace::Bgr, ImageSizes::Range { width: (3, None), height: (2, Some(8)) });
        assert_eq!(problem(&range, &pixels(&[8, 100, 3])), "");
        insta::assert_snapshot!(
            problem(&range, &pixels(&[9, 3, 3])),
            @"is an image of 9x3, height by width; allowed is a height of 2 to 8 and a width of 3 to any"
        );
    }

    #[test]
    fn images_of_float16_and_images_as_outputs_are_beyond_core_ml() {
        let feature = |name: &str, color| Feature {
            name: name.to_owned(),
            description: String::new(),
            ty: FeatureType::Image(image(color, ImageSizes::Fixed)),
            optional: false,
        };
        let taken =
            [ColorSpace::Rgb, ColorSpace::Bgr, ColorSpace::Grayscale].map(|color| feature("x", color));
        let mut interface = Interface { inputs: taken.into(), ..Interface::default() };
        assert_eq!(images_beyond_core_ml(&interface), [""; 0]);
        interface.inputs.push(feature("deep", ColorSpace::GrayscaleFloat16));
        interface.outputs.push(feature("y", ColorSpace::Rgb));
        insta::assert_snapshot!(images_beyond_core_ml(&interface).join("\n"), @r"
        the input `deep` is a grayscale image of float16, and the coreml runtime takes images of 8-bit RGB, BGR or gray pixels
        the output `y` is an image, and the coreml runtime gives no images
        ");
    }
}
