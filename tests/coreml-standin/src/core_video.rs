//! Core Video's pixel buffers: objects of one class, and the C functions that make and access them.
//!
//! Rows always have room after them, and fresh memory is not zeroed.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anemeter::tensor::AlignedBuf;
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, define_class};
use objc2_core_video::{CVPixelBuffer, kCVPixelFormatType_32BGRA, kCVPixelFormatType_OneComponent8};

use crate::fault::{self, Fault};
use crate::instance::{behind, make};

/// What fresh memory holds.
const GARBAGE: u8 = 0x7e;
/// Pixel formats, and the bytes of a pixel.
const FORMATS: [(u32, usize); 2] = [(kCVPixelFormatType_32BGRA, 4), (kCVPixelFormatType_OneComponent8, 1)];
/// Rows begin on such boundaries, and never where the row before ends.
const ROW_ALIGNMENT: usize = 64;

/// Values of `CVReturn`.
const SUCCESS: i32 = 0;
const INVALID_ARGUMENT: i32 = -6661;
const ALLOCATION_FAILED: i32 = -6662;
const INVALID_PIXEL_FORMAT: i32 = -6680;
const INVALID_SIZE: i32 = -6681;

/// What is behind a pixel buffer.
struct Pixels {
    format: u32,
    width: usize,
    height: usize,
    bytes_per_row: usize,
    bytes: NonNull<u8>,
    /// Never looked at: it only has to live as long as the buffer.
    _memory: AlignedBuf,
    /// How often the memory was locked and not unlocked.
    locks: AtomicUsize,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "CVPixelBuffer"]
    #[ivars = Pixels]
    struct PixelBuffer;
);

impl PixelBuffer {
    fn of(buffer: &CVPixelBuffer) -> &PixelBuffer {
        let object: &AnyObject = buffer.as_ref();
        behind(object)
    }
}

/// The pixels of a buffer.
pub(crate) struct PixelRows {
    pub(crate) format: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// The pixels, without the room after rows.
    pub(crate) bytes: Vec<u8>,
}

/// Reads a buffer; nothing if somebody may still write to it.
pub(crate) fn rows(buffer: &CVPixelBuffer) -> Option<PixelRows> {
    let pixels = PixelBuffer::of(buffer).ivars();
    if pixels.locks.load(SeqCst) != 0 {
        return None;
    }
    let used = pixels.width * pixel_bytes(pixels.format)?;
    let row = |row: usize| {
        // SAFETY: the memory has that many rows of so many bytes, and nobody has locked it to write there.
        unsafe { slice::from_raw_parts(pixels.bytes.add(row * pixels.bytes_per_row).as_ptr(), used) }
    };
    let bytes = (0..pixels.height).flat_map(row).copied().collect();
    Some(PixelRows { format: pixels.format, width: pixels.width, height: pixels.height, bytes })
}

fn pixel_bytes(format: u32) -> Option<usize> {
    FORMATS.iter().find(|(known, _)| *known == format).map(|(_, bytes)| *bytes)
}

fn new(width: usize, height: usize, format: u32) -> Result<Retained<PixelBuffer>, i32> {
    let used = width.checked_mul(pixel_bytes(format).ok_or(INVALID_PIXEL_FORMAT)?).ok_or(INVALID_SIZE)?;
    if used == 0 || height == 0 {
        return Err(INVALID_SIZE);
    }
    if fault::is_on(Fault::NoPixelBuffer) {
        return Err(ALLOCATION_FAILED);
    }
    let bytes_per_row = (used + 1).next_multiple_of(ROW_ALIGNMENT);
    let mut memory = AlignedBuf::zeroed(bytes_per_row.checked_mul(height).ok_or(INVALID_SIZE)?);
    memory.fill(GARBAGE);
    let bytes = NonNull::from(&mut memory[..]).cast();
    let locks = AtomicUsize::new(0);
    Ok(make(Pixels { format, width, height, bytes_per_row, bytes, _memory: memory, locks }))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn CVPixelBufferCreate(
    _allocator: *const c_void,
    width: usize,
    height: usize,
    format: u32,
    _attributes: *const c_void,
    out: Option<&mut *mut CVPixelBuffer>,
) -> i32 {
    let Some(out) = out else { return INVALID_ARGUMENT };
    match new(width, height, format) {
        Ok(buffer) => {
            *out = Retained::into_raw(buffer).cast();
            SUCCESS
        }
        Err(error) => {
            *out = null_mut();
            error
        }
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn CVPixelBufferLockBaseAddress(buffer: &CVPixelBuffer, _flags: u64) -> i32 {
    PixelBuffer::of(buffer).ivars().locks.fetch_add(1, SeqCst);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C-unwind" fn CVPixelBufferUnlockBaseAddress(buffer: &CVPixelBuffer, _flags: u64) -> i32 {
    let locks = &PixelBuffer::of(buffer).ivars().locks;
    let unlocked = locks.fetch_update(SeqCst, SeqCst, |locks| locks.checked_sub(1));
    unlocked.map_or(INVALID_ARGUMENT, |_| SUCCESS)
}

/// Memory that is not locked is not given out.
#[unsafe(no_mangle)]
extern "C-unwind" fn CVPixelBufferGetBaseAddress(buffer: &CVPixelBuffer) -> *mut c_void {
    let pixels = PixelBuffer::of(buffer).ivars();
    if pixels.locks.load(SeqCst) == 0 { null_mut() } else { pixels.bytes.as_ptr().cast() }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn CVPixelBufferGetBytesPerRow(buffer: &CVPixelBuffer) -> usize {
    PixelBuffer::of(buffer).ivars().bytes_per_row
}

pub(crate) fn register() {
    PixelBuffer::class();
}
