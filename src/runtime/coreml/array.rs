//! Multi-arrays: over memory of ours that is reused, over a caller's memory for one call, or Core ML's own, read by strides.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block2::{RcBlock, StackBlock};
use objc2::AnyThread;
use objc2::rc::Retained;
use objc2_core_ml::{MLMultiArray, MLMultiArrayDataType};
use objc2_foundation::{NSArray, NSNumber};

use super::error;
use super::wait::SendHandle;
use crate::RuntimeError;
use crate::strided::Strided;
use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, TensorView, shape};

/// Element types that a multi-array can have.
const TYPES: [(DType, MLMultiArrayDataType); 5] = [
    (DType::F16, MLMultiArrayDataType::Float16),
    (DType::F32, MLMultiArrayDataType::Float32),
    (DType::F64, MLMultiArrayDataType::Float64),
    (DType::I32, MLMultiArrayDataType::Int32),
    (DType::I8, MLMultiArrayDataType::Int8),
];

fn to_core_ml(dtype: DType) -> Option<MLMultiArrayDataType> {
    TYPES.iter().find(|(ours, _)| *ours == dtype).map(|(_, theirs)| *theirs)
}

/// The element type of an array; `None` if it is one that this program does not know.
fn dtype(array: &MLMultiArray) -> Option<DType> {
    // SAFETY: a plain getter.
    let found = unsafe { array.dataType() };
    TYPES.iter().find(|(_, theirs)| *theirs == found).map(|(ours, _)| *ours)
}

fn numbers(values: &[usize]) -> Retained<NSArray<NSNumber>> {
    let numbers: Vec<_> = values.iter().map(|&value| NSNumber::new_usize(value)).collect();
    NSArray::from_retained_slice(&numbers)
}

/// Sizes or strides; `None` if one is negative.
fn sizes(numbers: &NSArray<NSNumber>) -> Option<Shape> {
    numbers.iter().map(|number| usize::try_from(number.as_isize()).ok()).collect()
}

/// A deallocator, which Core ML calls when the array is gone.
type Deallocator = RcBlock<dyn Fn(NonNull<c_void>)>;

/// A contiguous array over memory. The memory must stay valid until the deallocator is called or disposed of.
fn over(
    memory: NonNull<c_void>,
    ty: DType,
    shape: &[usize],
    deallocator: &Deallocator,
) -> Result<Retained<MLMultiArray>, RuntimeError> {
    let doing = || format!("make an array of {ty} {shape:?}");
    let Some(data_type) = to_core_ml(ty) else {
        return Err(RuntimeError::Environment(format!("cannot {}: Core ML has no such arrays", doing())));
    };
    // SAFETY: the caller vouches for the memory, whose length follows from type and shape; strides are those of it.
    let made = unsafe {
        MLMultiArray::initWithDataPointer_shape_dataType_strides_deallocator_error(
            MLMultiArray::alloc(),
            memory,
            &numbers(shape),
            data_type,
            &numbers(&shape::strides(shape)),
            Some(deallocator),
        )
    };
    made.map_err(|error| error::failed(doing(), &error))
}

/// An array over memory of ours, used for many predictions.
pub(super) struct OwnedArray {
    array: SendHandle<Retained<MLMultiArray>>,
    memory: SendHandle<NonNull<u8>>,
    bytes: usize,
    dtype: DType,
    shape: Shape,
}

impl OwnedArray {
    /// A zeroed array. Its memory belongs to the deallocator, so that it lives as long as Core ML knows the array.
    pub(super) fn zeroed(dtype: DType, shape: &[usize]) -> Result<OwnedArray, RuntimeError> {
        let bytes = shape::element_count(shape).and_then(|count| dtype.byte_len(count));
        let Some(bytes) = bytes.filter(|&bytes| bytes > 0) else {
            return Err(RuntimeError::Environment(format!("cannot make an array of {dtype} {shape:?}")));
        };
        let mut buffer = AlignedBuf::zeroed(bytes);
        let memory = NonNull::from(&mut buffer[..]).cast::<u8>();
        let deallocator: Deallocator = RcBlock::new(move |_: NonNull<c_void>| {
            // Disposing of the handler frees the buffer; that it is named here makes it a part of the handler.
            let _ = &buffer;
        });
        let array = over(memory.cast(), dtype, shape, &deallocator)?;
        Ok(OwnedArray {
            array: SendHandle(array),
            memory: SendHandle(memory),
            bytes,
            dtype,
            shape: shape.into(),
        })
    }

    pub(super) fn array(&self) -> &Retained<MLMultiArray> {
        &self.array.0
    }

    pub(super) fn fits(&self, view: &TensorView<'_>) -> bool {
        self.dtype == view.dtype() && self.shape[..] == *view.shape()
    }

    /// Takes the elements of a tensor that fits.
    pub(super) fn write(&mut self, view: &TensorView<'_>) {
        // SAFETY: the memory is alive as long as the array, which this owns; no prediction runs while `self` is borrowed
        // mutably, and `bytes` is the memory's length.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.memory.0.as_ptr(), self.bytes) };
        memory.copy_from_slice(view.bytes());
    }

    pub(super) fn view(&self) -> Option<TensorView<'_>> {
        // SAFETY: as above; predictions that write to it take the session mutably.
        let memory = unsafe { std::slice::from_raw_parts(self.memory.0.as_ptr(), self.bytes) };
        TensorView::new(self.dtype, &self.shape, memory).ok()
    }
}

/// An array over a caller's memory, for one call.
pub(super) struct LentArray {
    pub(super) array: Retained<MLMultiArray>,
    pub(super) returned: Arc<AtomicBool>,
}

/// Lends a tensor to Core ML. The caller drops the array before the tensor and looks whether it was returned.
pub(super) fn lend(view: &TensorView<'_>) -> Result<LentArray, RuntimeError> {
    let returned = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&returned);
    let deallocator: Deallocator =
        RcBlock::new(move |_: NonNull<c_void>| flag.store(true, Ordering::Release));
    // Inputs are only read, so that a pointer that could be written through does no harm.
    let memory = NonNull::from(view.bytes()).cast::<c_void>();
    let array = over(memory, view.dtype(), view.shape(), &deallocator)?;
    Ok(LentArray { array, returned })
}

/// A contiguous copy of an array.
#[derive(Default)]
pub(super) struct ArrayCopy {
    dtype: Option<DType>,
    shape: Shape,
    buffer: AlignedBuf,
}

impl ArrayCopy {
    pub(super) fn zeroed(dtype: DType, shape: &[usize]) -> Option<ArrayCopy> {
        let bytes = dtype.byte_len(shape::element_count(shape)?)?;
        Some(ArrayCopy { dtype: Some(dtype), shape: shape.into(), buffer: AlignedBuf::zeroed(bytes) })
    }

    pub(super) fn view(&self) -> Option<TensorView<'_>> {
        TensorView::new(self.dtype?, &self.shape, &self.buffer).ok()
    }

    /// Takes the elements of an array, which may be padded and in any order of dimensions. The text of a failure says what
    /// is wrong with the array.
    pub(super) fn read(&mut self, array: &MLMultiArray, expected: DType) -> Result<(), String> {
        let (ty, shape) = describe(array)?;
        if ty != expected {
            return Err(format!("is {ty}, expected {expected}"));
        }
        // SAFETY: a plain getter.
        let strides = unsafe { array.strides() };
        let strides = sizes(&strides).ok_or("has a negative stride")?;
        let layout = layout(ty, &shape, &strides)?;
        self.dtype = Some(ty);
        self.shape = shape;
        self.buffer.resize(layout.contiguous_bytes());
        let (layout, done) = (&layout, RefCell::new(None));
        let to = RefCell::new(&mut self.buffer[..]);
        let (done_in, to_in) = (&done, &to);
        let handler = StackBlock::new(move |bytes: NonNull<c_void>, size: isize| {
            let Ok(size) = usize::try_from(size) else { return };
            // SAFETY: Core ML lends `size` bytes for the time of the handler, in which nothing else writes to them.
            let from = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>().as_ptr(), size) };
            *done_in.borrow_mut() = Some(layout.gather(from, &mut to_in.borrow_mut()));
        });
        // SAFETY: the handler takes what the method gives and is called before the method returns.
        unsafe { array.getBytesWithHandler(&handler) };
        finish(done.take())
    }
}

/// Replaces the elements of an array by those of a tensor.
pub(super) fn write(array: &MLMultiArray, view: &TensorView<'_>) -> Result<(), String> {
    let (ty, shape) = describe(array)?;
    if ty != view.dtype() || shape[..] != *view.shape() {
        return Err(format!("is {ty} {shape:?}, expected {} {:?}", view.dtype(), view.shape()));
    }
    let done = RefCell::new(None);
    let (done_in, shape_in, from) = (&done, &shape, view.bytes());
    let handler =
        StackBlock::new(move |bytes: NonNull<c_void>, size: isize, strides: NonNull<NSArray<NSNumber>>| {
            let Ok(size) = usize::try_from(size) else { return };
            // SAFETY: Core ML lends `size` bytes and the array of strides for the time of the handler, to nobody else.
            let (to, strides) = unsafe {
                (std::slice::from_raw_parts_mut(bytes.cast::<u8>().as_ptr(), size), strides.as_ref())
            };
            let written = sizes(strides)
                .ok_or_else(|| "has a negative stride".to_owned())
                .and_then(|strides| layout(ty, shape_in, &strides))
                .map(|layout| layout.scatter(from, to));
            *done_in.borrow_mut() = Some(written);
        });
    // SAFETY: the handler takes what the method gives and is called before the method returns.
    unsafe { array.getMutableBytesWithHandler(&handler) };
    done.take().ok_or("cannot be accessed")?.and_then(|written| finish(Some(written)))
}

fn describe(array: &MLMultiArray) -> Result<(DType, Shape), String> {
    let ty = dtype(array).ok_or("has an element type that is not known")?;
    // SAFETY: a plain getter.
    let shape = unsafe { array.shape() };
    let shape = sizes(&shape).ok_or("has a negative size")?;
    Ok((ty, shape))
}

fn layout(ty: DType, shape: &[usize], strides: &[usize]) -> Result<Strided, String> {
    Strided::new(shape, strides, ty.byte_len(1).unwrap_or(1)).map_err(|e| e.to_string())
}

fn finish(done: Option<Result<(), crate::strided::LayoutError>>) -> Result<(), String> {
    done.ok_or("cannot be accessed")?.map_err(|e| e.to_string())
}
