//! Images: pixels of a tensor, row by row, in a pixel buffer of Core Video's that is used for many predictions.

use std::ptr::{self, NonNull};

use objc2::rc::Retained;
use objc2_core_ml::MLFeatureValue;
use objc2_core_video::{
    CVPixelBuffer, CVPixelBufferCreate, CVPixelBufferGetBaseAddress, CVPixelBufferGetBytesPerRow,
    CVPixelBufferLockBaseAddress, CVPixelBufferLockFlags, CVPixelBufferUnlockBaseAddress, CVReturn,
    kCVPixelFormatType_32BGRA, kCVPixelFormatType_OneComponent8, kCVReturnSuccess,
};

use super::wait::SendHandle;
use crate::RuntimeError;
use crate::images::pixel_size;
use anemeter_kernels::tensor::TensorView;
use anemeter_mil::{ColorSpace, ImageType};

/// How pixels lie in a pixel buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Blue, green, red and an opaque alpha. Core ML brings them into the order that the model has, RGB or BGR.
    Bgra,
    /// One byte of gray.
    Gray,
}

impl Format {
    fn of(color: ColorSpace) -> Option<Format> {
        match color {
            ColorSpace::Rgb | ColorSpace::Bgr => Some(Format::Bgra),
            ColorSpace::Grayscale => Some(Format::Gray),
            ColorSpace::GrayscaleFloat16 => None,
        }
    }

    fn code(self) -> u32 {
        match self {
            Format::Bgra => kCVPixelFormatType_32BGRA,
            Format::Gray => kCVPixelFormatType_OneComponent8,
        }
    }

    fn pixel_bytes(self) -> usize {
        match self {
            Format::Bgra => 4,
            Format::Gray => 1,
        }
    }

    /// Writes a row of a tensor's pixels, red first, into a row that is as wide.
    fn write_row(self, from: &[u8], to: &mut [u8]) {
        match self {
            Format::Bgra => {
                for (from, to) in from.chunks_exact(3).zip(to.chunks_exact_mut(4)) {
                    to.copy_from_slice(&[from[2], from[1], from[0], u8::MAX]);
                }
            }
            Format::Gray => to.copy_from_slice(from),
        }
    }
}

/// A pixel buffer for the images of one size.
pub(super) struct OwnedImage {
    buffer: SendHandle<Retained<CVPixelBuffer>>,
    format: Format,
    /// Height and width.
    size: [usize; 2],
}

impl OwnedImage {
    /// A buffer for pixels like these.
    pub(super) fn like(image: &ImageType, pixels: &TensorView<'_>) -> Result<OwnedImage, RuntimeError> {
        let refused = |problem: String| RuntimeError::Environment(format!("cannot make an image: {problem}"));
        let format =
            Format::of(image.color).ok_or_else(|| refused("its pixels have more than 8 bits".to_owned()))?;
        let size = pixel_size(image, pixels).map_err(|problem| refused(format!("its tensor {problem}")))?;
        let [height, width] = size;
        let mut made: *mut CVPixelBuffer = ptr::null_mut();
        // SAFETY: there are no attributes whose types could be wrong, and the result is written to a pointer of ours.
        let status = unsafe {
            CVPixelBufferCreate(None, width, height, format.code(), None, NonNull::from(&mut made))
        };
        succeeded(status, || format!("make a pixel buffer, {height} high and {width} wide"))?;
        // SAFETY: the function gives a new object, or nil, that is ours to release. It is released like any object, as all of
        // Core Foundation's are.
        let buffer = unsafe { Retained::from_raw(made) };
        let buffer = buffer.ok_or_else(|| refused("Core Video gave no pixel buffer".to_owned()))?;
        Ok(OwnedImage { buffer: SendHandle(buffer), format, size })
    }

    pub(super) fn fits(&self, image: &ImageType, pixels: &TensorView<'_>) -> bool {
        Some(self.format) == Format::of(image.color) && pixel_size(image, pixels) == Ok(self.size)
    }

    /// Takes the pixels of a tensor that fits. Rows of the buffer may have room after them.
    pub(super) fn write(&mut self, pixels: &TensorView<'_>) -> Result<(), RuntimeError> {
        let [height, width] = self.size;
        let buffer = &*self.buffer.0;
        let locked = Locked::new(buffer)?;
        let memory = NonNull::new(CVPixelBufferGetBaseAddress(buffer).cast::<u8>());
        let (stride, used) = (CVPixelBufferGetBytesPerRow(buffer), width * self.format.pixel_bytes());
        let (Some(memory), true) = (memory, stride >= used) else {
            let problem = format!("cannot write an image: {width} pixels in rows of {stride} bytes");
            return Err(RuntimeError::Environment(problem));
        };
        let rows = pixels.bytes().chunks_exact((pixels.bytes().len() / height.max(1)).max(1));
        for (row, from) in rows.take(height).enumerate() {
            // SAFETY: a locked buffer has `height` rows, `stride` bytes apart, of at least `used` bytes each. `self` is borrowed
            // mutably, so that nobody else uses them: a prediction has ended before the next writes its inputs.
            let to = unsafe { std::slice::from_raw_parts_mut(memory.add(row * stride).as_ptr(), used) };
            self.format.write_row(from, to);
        }
        drop(locked);
        Ok(())
    }

    pub(super) fn value(&self) -> Retained<MLFeatureValue> {
        // SAFETY: the buffer is live, and the value keeps it.
        unsafe { MLFeatureValue::featureValueWithPixelBuffer(&self.buffer.0) }
    }
}

/// Access to the memory of a pixel buffer.
struct Locked<'a>(&'a CVPixelBuffer);

impl<'a> Locked<'a> {
    fn new(buffer: &'a CVPixelBuffer) -> Result<Locked<'a>, RuntimeError> {
        // SAFETY: the buffer is live; it is unlocked, with the same flags, when this is dropped.
        let status = unsafe { CVPixelBufferLockBaseAddress(buffer, CVPixelBufferLockFlags::empty()) };
        succeeded(status, || "lock a pixel buffer".to_owned()).map(|()| Locked(buffer))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: the buffer is live, and was locked with the same flags. A failure leaves nothing to do.
        unsafe { CVPixelBufferUnlockBaseAddress(self.0, CVPixelBufferLockFlags::empty()) };
    }
}

fn succeeded(status: CVReturn, doing: impl FnOnce() -> String) -> Result<(), RuntimeError> {
    if status == kCVReturnSuccess {
        return Ok(());
    }
    Err(RuntimeError::Environment(format!("cannot {}: Core Video's error {status}", doing())))
}
