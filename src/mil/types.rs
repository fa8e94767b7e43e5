//! The types of MIL values.

use std::fmt;

use anemeter_kernels::tensor::{DType, Shape};

/// One dimension of a tensor type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A size known when the program was written.
    Fixed(u64),
    /// A size known only when the program runs.
    Unknown,
    /// Any number of dimensions of any size: the tensor's rank is unknown.
    Variadic,
}

impl Dim {
    /// The size, if it is known.
    pub fn size(self) -> Option<usize> {
        match self {
            Dim::Fixed(n) => usize::try_from(n).ok(),
            Dim::Unknown | Dim::Variadic => None,
        }
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Dim {
        Dim::Fixed(size as u64)
    }
}

/// The type of a tensor: element type and dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// A tensor type from dimensions.
    pub fn new(dtype: DType, shape: Vec<Dim>) -> TensorType {
        TensorType { dtype, shape }
    }

    /// A tensor type whose dimensions are all known.
    pub fn fixed(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType { dtype, shape: shape.iter().map(|&d| Dim::from(d)).collect() }
    }

    /// A rank-0 tensor type.
    pub fn scalar(dtype: DType) -> TensorType {
        TensorType { dtype, shape: Vec::new() }
    }

    /// The number of dimensions, unless it is unknown.
    pub fn rank(&self) -> Option<usize> {
        (!self.shape.contains(&Dim::Variadic)).then_some(self.shape.len())
    }

    /// The shape, if every dimension is known.
    pub fn concrete(&self) -> Option<Shape> {
        self.shape.iter().map(|d| d.size()).collect()
    }
}

/// The type of any value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tensor.
    Tensor(TensorType),
    /// A list of tensors of one type.
    List(Box<Type>, Dim),
    /// A tuple.
    Tuple(Vec<Type>),
    /// A dictionary from the first type to the second.
    Dictionary(Box<Type>, Box<Type>),
    /// Memory that outlives a prediction.
    State(TensorType),
}

impl Type {
    /// The tensor type, if this is a tensor.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }
}

impl From<TensorType> for Type {
    fn from(tensor: TensorType) -> Type {
        Type::Tensor(tensor)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Unknown => f.write_str("?"),
            Dim::Variadic => f.write_str("..."),
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor<{}, [", self.dtype)?;
        for (i, dim) in self.shape.iter().enumerate() {
            write!(f, "{}{dim}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]>")
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(tensor) => tensor.fmt(f),
            Type::List(element, length) => write!(f, "list<{element}, {length}>"),
            Type::Tuple(types) => {
                f.write_str("tuple<")?;
                for (i, ty) in types.iter().enumerate() {
                    write!(f, "{}{ty}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(">")
            }
            Type::Dictionary(key, value) => write!(f, "dict<{key}, {value}>"),
            Type::State(tensor) => write!(f, "state<{tensor}>"),
        }
    }
}
