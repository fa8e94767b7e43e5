//! A tensor that is written again and again.

use bytemuck::cast_slice_mut;

use anemeter_kernels::tensor::{AlignedBuf, DType, Element, Shape, TensorError, TensorView, shape};

/// The most that one input may take.
const LARGEST: usize = 1 << 34;

pub(super) struct Buffer {
    dtype: DType,
    shape: Shape,
    data: AlignedBuf,
}

impl Buffer {
    pub(super) fn zeroed(dtype: DType, shape: &[usize]) -> Result<Buffer, TensorError> {
        let mut buffer = Buffer { dtype, shape: Shape::new(), data: AlignedBuf::default() };
        buffer.resize(shape)?;
        Ok(buffer)
    }

    /// Changes the shape; what the elements are afterwards is the caller's business.
    pub(super) fn resize(&mut self, shape: &[usize]) -> Result<(), TensorError> {
        let bytes = shape::element_count(shape).and_then(|count| self.dtype.byte_len(count));
        let Some(bytes) = bytes.filter(|&bytes| bytes <= LARGEST) else {
            return Err(TensorError::TooLarge { dtype: self.dtype, shape: shape.to_vec() });
        };
        self.data.resize(bytes);
        self.shape = shape.into();
        Ok(())
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Takes type, shape and content of a tensor.
    pub(super) fn copy_from(&mut self, view: &TensorView<'_>) -> Result<(), TensorError> {
        self.dtype = view.dtype();
        self.resize(view.shape())?;
        self.data.copy_from_slice(view.bytes());
        Ok(())
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(super) fn view(&self) -> Result<TensorView<'_>, TensorError> {
        TensorView::new(self.dtype, &self.shape, &self.data)
    }

    /// The elements, which must be of the buffer's type.
    pub(super) fn elements_mut<T: Element>(&mut self) -> &mut [T] {
        debug_assert_eq!(self.dtype, T::DTYPE);
        cast_slice_mut(&mut self.data)
    }
}
