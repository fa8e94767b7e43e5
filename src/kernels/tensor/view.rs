//! Tensors: a data type and a shape over bytes, owned, borrowed or mutable. Always contiguous, row-major.

use super::{AlignedBuf, Bytes, DType, Element, Shape, TensorError, shape};

/// Alignment in bytes that serves every element type.
const ALIGNMENT: usize = 8;

/// A shared, immutable tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    data: Bytes,
}

impl Tensor {
    /// A tensor over bytes that must be exactly as long as type and shape imply. Bytes that are not aligned
    /// for their elements are copied.
    pub fn new(dtype: DType, shape: Shape, data: Bytes) -> Result<Tensor, TensorError> {
        check_len(dtype, &shape, data.len())?;
        let aligned = (data.as_ptr() as usize).is_multiple_of(ALIGNMENT);
        let data = if aligned { data } else { AlignedBuf::from_slice(&data).into() };
        Ok(Tensor { dtype, shape, data })
    }

    /// A tensor of the given elements.
    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Result<Tensor, TensorError> {
        let bytes = AlignedBuf::from_slice(bytemuck::cast_slice(values));
        Tensor::new(T::DTYPE, shape.into(), bytes.into())
    }

    /// A `bool` tensor.
    pub fn from_bools(shape: &[usize], values: &[bool]) -> Result<Tensor, TensorError> {
        let bytes: Vec<u8> = values.iter().map(|&b| u8::from(b)).collect();
        Tensor::new(DType::Bool, shape.into(), bytes.into())
    }

    /// A scalar `bool`.
    pub fn from_bool(value: bool) -> Tensor {
        Tensor { dtype: DType::Bool, shape: Shape::new(), data: vec![u8::from(value)].into() }
    }

    /// A scalar string.
    pub fn from_text(text: &str) -> Tensor {
        Tensor { dtype: DType::String, shape: Shape::new(), data: text.as_bytes().to_vec().into() }
    }

    /// A rank-0 tensor.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        let data = AlignedBuf::from_slice(bytemuck::bytes_of(&value));
        Tensor { dtype: T::DTYPE, shape: Shape::new(), data: data.into() }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes; cloning them shares memory.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// A borrowed view.
    pub fn view(&self) -> TensorView<'_> {
        TensorView { dtype: self.dtype, shape: &self.shape, data: &self.data }
    }
}

/// A tensor over borrowed bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorView<'a> {
    dtype: DType,
    shape: &'a [usize],
    data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A view over bytes that must be exactly as long as type and shape imply.
    pub fn new(dtype: DType, shape: &'a [usize], data: &'a [u8]) -> Result<TensorView<'a>, TensorError> {
        check_len(dtype, shape, data.len())?;
        Ok(TensorView { dtype, shape, data })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        shape::element_count(self.shape).unwrap_or(usize::MAX)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.data
    }

    /// The elements, if they are of type `T`.
    pub fn slice<T: Element>(&self) -> Result<&'a [T], TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::WrongType { found: self.dtype, wanted: T::DTYPE });
        }
        bytemuck::try_cast_slice(self.data).map_err(|_| TensorError::Misaligned { dtype: self.dtype })
    }

    /// The elements of a `bool` tensor as bytes; anything but zero is true.
    pub fn bools(&self) -> Result<&'a [u8], TensorError> {
        match self.dtype {
            DType::Bool => Ok(self.data),
            found => Err(TensorError::WrongType { found, wanted: DType::Bool }),
        }
    }

    /// Copies into a tensor of its own.
    pub fn to_tensor(&self) -> Tensor {
        Tensor { dtype: self.dtype, shape: self.shape.into(), data: AlignedBuf::from_slice(self.data).into() }
    }
}

/// A tensor being written.
#[derive(Debug)]
pub struct TensorMut<'a> {
    dtype: DType,
    shape: &'a [usize],
    data: &'a mut [u8],
}

impl<'a> TensorMut<'a> {
    /// A mutable view over bytes that must be exactly as long as type and shape imply.
    pub fn new(dtype: DType, shape: &'a [usize], data: &'a mut [u8]) -> Result<TensorMut<'a>, TensorError> {
        check_len(dtype, shape, data.len())?;
        Ok(TensorMut { dtype, shape, data })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The raw bytes.
    pub fn bytes(self) -> &'a mut [u8] {
        self.data
    }

    /// The elements, if they are of type `T`.
    pub fn slice<T: Element>(self) -> Result<&'a mut [T], TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::WrongType { found: self.dtype, wanted: T::DTYPE });
        }
        bytemuck::try_cast_slice_mut(self.data).map_err(|_| TensorError::Misaligned { dtype: self.dtype })
    }

    /// The elements of a `bool` tensor; write 0 or 1.
    pub fn bools(self) -> Result<&'a mut [u8], TensorError> {
        match self.dtype {
            DType::Bool => Ok(self.data),
            found => Err(TensorError::WrongType { found, wanted: DType::Bool }),
        }
    }
}

fn check_len(dtype: DType, shape: &[usize], found: usize) -> Result<(), TensorError> {
    if dtype == DType::String {
        return Ok(());
    }
    let needed = shape::element_count(shape).and_then(|n| dtype.byte_len(n));
    match needed {
        Some(needed) if needed == found => Ok(()),
        Some(needed) => Err(TensorError::WrongLength { dtype, shape: shape.to_vec(), needed, found }),
        None => Err(TensorError::TooLarge { dtype, shape: shape.to_vec() }),
    }
}
