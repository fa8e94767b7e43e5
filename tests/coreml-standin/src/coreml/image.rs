//! Images: what an input allows, as a description says it, and the pixels of a value as the CPU runtime takes them.

use anemeter::mil::{ColorSpace, ImageSizes, ImageType};
use anemeter::tensor::Tensor;
use objc2::rc::Retained;
use objc2::runtime::NSObject;
use objc2::{ClassType, DefinedClass, define_class};
use objc2_core_video::{
    CVPixelBuffer, kCVPixelFormatType_32BGRA, kCVPixelFormatType_OneComponent8,
    kCVPixelFormatType_OneComponent16Half,
};
use objc2_foundation::{NSArray, NSRange};

use crate::core_video;
use crate::instance::make;

/// `MLImageSizeConstraintType`, by how the size may vary.
const UNSPECIFIED: isize = 0;
const ENUMERATED: isize = 2;
const RANGE: isize = 3;

fn format(color: ColorSpace) -> u32 {
    match color {
        ColorSpace::Rgb | ColorSpace::Bgr => kCVPixelFormatType_32BGRA,
        ColorSpace::Grayscale => kCVPixelFormatType_OneComponent8,
        ColorSpace::GrayscaleFloat16 => kCVPixelFormatType_OneComponent16Half,
    }
}

/// The pixels of a buffer for an input: rows of red, green and blue, or of gray. The text of a failure completes the name of
/// the input.
pub(super) fn pixels(image: &ImageType, buffer: &CVPixelBuffer) -> Result<Tensor, String> {
    let rows = core_video::rows(buffer).ok_or("is an image whose memory is locked")?;
    let expected = format(image.color);
    if rows.format != expected {
        return Err(format!("has the pixel format {:#x}, expected {expected:#x}", rows.format));
    }
    let (width, height) = (rows.width, rows.height);
    if !image.allows(height as u64, width as u64) {
        return Err(format!("Image size {width} x {height} not in allowed set of image sizes"));
    }
    let tensor = match image.color {
        ColorSpace::Rgb | ColorSpace::Bgr => {
            let rgb: Vec<u8> =
                rows.bytes.chunks_exact(4).flat_map(|bgra| [bgra[2], bgra[1], bgra[0]]).collect();
            Tensor::from_slice(&[height, width, 3], &rgb)
        }
        _ => Tensor::from_slice(&[height, width], &rows.bytes),
    };
    tensor.map_err(|error| error.to_string())
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLImageConstraint"]
    #[ivars = ImageType]
    pub(super) struct Constraint;

    impl Constraint {
        #[unsafe(method(pixelsHigh))]
        fn height(&self) -> isize {
            self.ivars().height as isize
        }

        #[unsafe(method(pixelsWide))]
        fn width(&self) -> isize {
            self.ivars().width as isize
        }

        #[unsafe(method(pixelFormatType))]
        fn pixel_format(&self) -> u32 {
            format(self.ivars().color)
        }

        #[unsafe(method_id(sizeConstraint))]
        fn size_constraint(&self) -> Retained<SizeConstraint> {
            make(self.ivars().clone())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLImageSizeConstraint"]
    #[ivars = ImageType]
    struct SizeConstraint;

    impl SizeConstraint {
        #[unsafe(method(type))]
        fn kind(&self) -> isize {
            match self.ivars().sizes {
                ImageSizes::Fixed => UNSPECIFIED,
                ImageSizes::Enumerated(_) => ENUMERATED,
                ImageSizes::Range { .. } => RANGE,
            }
        }

        #[unsafe(method_id(enumeratedImageSizes))]
        fn sizes(&self) -> Retained<NSArray<Size>> {
            let sizes: &[(u64, u64)] = match &self.ivars().sizes {
                ImageSizes::Enumerated(sizes) => sizes,
                _ => &[],
            };
            NSArray::from_retained_slice(&sizes.iter().map(|&size| make::<Size>(size)).collect::<Vec<_>>())
        }

        #[unsafe(method(pixelsWideRange))]
        fn widths(&self) -> NSRange {
            match &self.ivars().sizes {
                ImageSizes::Range { width, .. } => range(*width),
                _ => NSRange::default(),
            }
        }

        #[unsafe(method(pixelsHighRange))]
        fn heights(&self) -> NSRange {
            match &self.ivars().sizes {
                ImageSizes::Range { height, .. } => range(*height),
                _ => NSRange::default(),
            }
        }
    }
);

fn range((low, high): (u64, Option<u64>)) -> NSRange {
    let (low, high) = (low as usize, high.map_or(isize::MAX as usize, |high| high as usize));
    NSRange::new(low, high - low + 1)
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLImageSize"]
    #[ivars = (u64, u64)]
    struct Size;

    impl Size {
        #[unsafe(method(pixelsWide))]
        fn width(&self) -> isize {
            self.ivars().0 as isize
        }

        #[unsafe(method(pixelsHigh))]
        fn height(&self) -> isize {
            self.ivars().1 as isize
        }
    }
);

pub(super) fn register() {
    Constraint::class();
    SizeConstraint::class();
    Size::class();
}
