//! `MLMultiArray`: memory of its own or of somebody else, with strides that need not be tight.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::slice;

use anemeter::tensor::{AlignedBuf, DType, TensorView};
use block2::{DynBlock, RcBlock};
use objc2::rc::{Allocated, Retained};
use objc2::runtime::NSObject;
use objc2::{ClassType, DefinedClass, define_class, msg_send};
use objc2_core_ml::MLMultiArray;
use objc2_foundation::{NSArray, NSError, NSNumber};

use super::code;
use crate::foundation::error::Failure;
use crate::instance::make_public;

/// What fresh memory holds: nobody zeroes it. Two such bytes are a NaN of float16.
const GARBAGE: u8 = 0x7e;

/// Element types, as `MLMultiArrayDataType` numbers them.
const TYPES: &[(DType, isize)] = &[
    (DType::F64, 0x10000 | 64),
    (DType::F32, 0x10000 | 32),
    (DType::F16, 0x10000 | 16),
    (DType::I32, 0x20000 | 32),
    (DType::I8, 0x20000 | 8),
];

pub(super) fn to_number(dtype: DType) -> Option<isize> {
    TYPES.iter().find(|(known, _)| *known == dtype).map(|(_, number)| *number)
}

fn from_number(number: isize) -> Option<DType> {
    TYPES.iter().find(|(_, known)| *known == number).map(|(dtype, _)| *dtype)
}

pub(super) fn numbers(values: &[usize]) -> Retained<NSArray<NSNumber>> {
    let numbers: Vec<_> = values.iter().map(|&value| NSNumber::new_usize(value)).collect();
    NSArray::from_retained_slice(&numbers)
}

fn sizes(numbers: &NSArray<NSNumber>) -> Vec<usize> {
    numbers.iter().map(|number| number.as_usize()).collect()
}

/// How far apart elements lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spacing {
    Tight,
    /// Room after every row.
    Rows,
    /// Room after every dimension.
    Everywhere,
}

impl Spacing {
    /// The stride of each dimension, in elements.
    fn strides(self, shape: &[usize]) -> Vec<usize> {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            let span = strides[axis] * shape[axis].max(1);
            strides[axis - 1] = match self {
                Spacing::Tight => span,
                Spacing::Rows if axis == shape.len() - 1 => (span + 1).next_multiple_of(32),
                Spacing::Rows => span,
                Spacing::Everywhere => span + 3,
            };
        }
        strides
    }
}

/// What is behind an array.
pub(super) struct Memory {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    bytes: NonNull<u8>,
    length: usize,
    owner: Owner,
}

enum Owner {
    /// Never looked at again: it only has to live as long as the array.
    Own {
        _buffer: AlignedBuf,
    },
    Other(Option<RcBlock<dyn Fn(NonNull<c_void>)>>),
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Other(Some(deallocator)) = &self.owner {
            deallocator.call((self.bytes.cast(),));
        }
    }
}

impl Memory {
    fn own(dtype: DType, shape: Vec<usize>, strides: Vec<usize>) -> Option<Memory> {
        let length = span(dtype, &shape, &strides)?;
        let mut buffer = AlignedBuf::zeroed(length);
        buffer.fill(GARBAGE);
        let bytes = NonNull::from(&mut buffer[..]).cast();
        Some(Memory { dtype, shape, strides, bytes, length, owner: Owner::Own { _buffer: buffer } })
    }

    fn is_tight(&self) -> bool {
        self.strides == Spacing::Tight.strides(&self.shape)
    }

    fn slice(&self) -> &[u8] {
        // SAFETY: the memory is that long and lives as long as the array; nobody writes while it is read.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.length) }
    }

    #[expect(clippy::mut_from_ref, reason = "the memory of an array is written through shared references")]
    fn slice_mut(&self) -> &mut [u8] {
        // SAFETY: as above; nobody else uses it while it is written.
        unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr(), self.length) }
    }

    /// Offsets in bytes of all rows, and the bytes of one element.
    fn rows(&self) -> (Vec<usize>, usize) {
        let size = self.dtype.byte_len(1).unwrap_or(1);
        let mut offsets = vec![0];
        for (length, stride) in self.shape.iter().zip(&self.strides).take(self.shape.len().saturating_sub(1))
        {
            let steps = offsets.iter().flat_map(|&at| (0..*length).map(move |i| at + i * stride * size));
            offsets = steps.collect();
        }
        (offsets, size)
    }

    /// The elements in order, without gaps.
    fn gather(&self) -> Vec<u8> {
        let (rows, size) = self.rows();
        let (width, stride) = self.row();
        let all = self.slice();
        let element = |row: usize, i: usize| &all[row + i * stride * size..][..size];
        rows.into_iter().flat_map(|row| (0..width).flat_map(move |i| element(row, i))).copied().collect()
    }

    fn scatter(&self, elements: &[u8]) {
        let (rows, size) = self.rows();
        let (width, stride) = self.row();
        let all = self.slice_mut();
        if stride == 1 {
            for (row, from) in rows.into_iter().zip(elements.chunks_exact((width * size).max(1))) {
                all[row..row + from.len()].copy_from_slice(from);
            }
            return;
        }
        let places = rows.into_iter().flat_map(|row| (0..width).map(move |i| row + i * stride * size));
        for (at, from) in places.zip(elements.chunks_exact(size)) {
            all[at..at + size].copy_from_slice(from);
        }
    }

    /// Width and stride of a row; a scalar is a row of one.
    fn row(&self) -> (usize, usize) {
        (self.shape.last().copied().unwrap_or(1), self.strides.last().copied().unwrap_or(1))
    }
}

/// Bytes from the first element to the end of the last, or nothing if strides and shape do not go together.
fn span(dtype: DType, shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.len() != strides.len() || shape.contains(&0) {
        return None;
    }
    let reach = shape
        .iter()
        .zip(strides)
        .try_fold(0usize, |reach, (length, stride)| reach.checked_add((length - 1).checked_mul(*stride)?))?;
    // Padding belongs to the array, also after its last row.
    let padded = shape.first().zip(strides.first()).and_then(|(length, stride)| length.checked_mul(*stride));
    dtype.byte_len(padded.unwrap_or(1).max(reach.checked_add(1)?))
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLMultiArray"]
    #[ivars = Memory]
    pub(super) struct Array;

    impl Array {
        #[unsafe(method_id(initWithShape:dataType:error:))]
        fn init(
            this: Allocated<Self>,
            shape: &NSArray<NSNumber>,
            data_type: isize,
            error: *mut *mut NSError,
        ) -> Option<Retained<Self>> {
            let shape = sizes(shape);
            let strides = Spacing::Tight.strides(&shape);
            let memory = from_number(data_type).and_then(|dtype| Memory::own(dtype, shape, strides));
            start(this, memory, error)
        }

        #[unsafe(method_id(initWithShape:dataType:strides:))]
        fn init_with_strides(
            this: Allocated<Self>,
            shape: &NSArray<NSNumber>,
            data_type: isize,
            strides: &NSArray<NSNumber>,
        ) -> Option<Retained<Self>> {
            let memory = from_number(data_type).and_then(|dtype| Memory::own(dtype, sizes(shape), sizes(strides)));
            start(this, memory, std::ptr::null_mut())
        }

        #[unsafe(method_id(initWithDataPointer:shape:dataType:strides:deallocator:error:))]
        fn init_over(
            this: Allocated<Self>,
            bytes: NonNull<c_void>,
            shape: &NSArray<NSNumber>,
            data_type: isize,
            strides: &NSArray<NSNumber>,
            deallocator: Option<&DynBlock<dyn Fn(NonNull<c_void>)>>,
            error: *mut *mut NSError,
        ) -> Option<Retained<Self>> {
            let (shape, strides) = (sizes(shape), sizes(strides));
            let length = from_number(data_type).and_then(|dtype| Some((dtype, span(dtype, &shape, &strides)?)));
            let memory = length.map(|(dtype, length)| Memory {
                dtype,
                shape,
                strides,
                bytes: bytes.cast(),
                length,
                owner: Owner::Other(deallocator.map(DynBlock::copy)),
            });
            start(this, memory, error)
        }

        #[unsafe(method(dataPointer))]
        fn pointer(&self) -> NonNull<c_void> {
            self.ivars().bytes.cast()
        }

        #[unsafe(method(dataType))]
        fn data_type(&self) -> isize {
            to_number(self.ivars().dtype).unwrap_or(0)
        }

        #[unsafe(method(count))]
        fn count(&self) -> isize {
            self.ivars().shape.iter().product::<usize>() as isize
        }

        #[unsafe(method_id(shape))]
        fn shape_numbers(&self) -> Retained<NSArray<NSNumber>> {
            numbers(&self.ivars().shape)
        }

        #[unsafe(method_id(strides))]
        fn stride_numbers(&self) -> Retained<NSArray<NSNumber>> {
            numbers(&self.ivars().strides)
        }

        #[unsafe(method(getBytesWithHandler:))]
        fn read_bytes(&self, handler: &DynBlock<dyn Fn(NonNull<c_void>, isize)>) {
            handler.call((self.ivars().bytes.cast(), self.ivars().length as isize));
        }

        #[unsafe(method(getMutableBytesWithHandler:))]
        fn write_bytes(
            &self,
            handler: &DynBlock<dyn Fn(NonNull<c_void>, isize, NonNull<NSArray<NSNumber>>)>,
        ) {
            let strides = numbers(&self.ivars().strides);
            handler.call((self.ivars().bytes.cast(), self.ivars().length as isize, NonNull::from(&*strides)));
        }
    }
);

fn start(
    this: Allocated<Array>,
    memory: Option<Memory>,
    error: *mut *mut NSError,
) -> Option<Retained<Array>> {
    let Some(memory) = memory else {
        return Failure::new(
            code::GENERIC,
            "The shape, the strides or the data type of the array is invalid.",
        )
        .report(error);
    };
    // SAFETY: `init` of the root class takes nothing and returns the object.
    unsafe { msg_send![super(this.set_ivars(memory)), init] }
}

/// A new array that holds a tensor.
pub(super) fn holding(tensor: &TensorView<'_>, spacing: Spacing) -> Option<Retained<MLMultiArray>> {
    to_number(tensor.dtype())?;
    let memory = Memory::own(tensor.dtype(), tensor.shape().to_vec(), spacing.strides(tensor.shape()))?;
    memory.scatter(tensor.bytes());
    Some(make_public::<Array, _>(memory))
}

impl Array {
    pub(super) fn dtype(&self) -> DType {
        self.ivars().dtype
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.ivars().shape
    }

    /// The elements, without gaps: those of the array itself where it has none.
    pub(super) fn elements(&self) -> std::borrow::Cow<'_, [u8]> {
        let memory = self.ivars();
        let tight = memory.shape.iter().product::<usize>();
        let length = memory.dtype.byte_len(tight).unwrap_or(0);
        if memory.is_tight() { memory.slice()[..length].into() } else { memory.gather().into() }
    }

    /// Takes a tensor's elements, if it is one of the same type and shape.
    pub(super) fn take(&self, tensor: &TensorView<'_>) -> bool {
        let fits = self.dtype() == tensor.dtype() && self.shape() == tensor.shape();
        if fits {
            self.ivars().scatter(tensor.bytes());
        }
        fits
    }

    /// Makes every element useless, for whoever looks at it after it is gone.
    pub(super) fn spoil(&self) {
        self.ivars().slice_mut().fill(GARBAGE);
    }
}

pub(super) fn register() {
    Array::class();
}
