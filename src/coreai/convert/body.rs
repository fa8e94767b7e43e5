//! A region under construction: operations whose result types are stated as they are pushed.

use std::borrow::Cow;
use std::collections::HashMap;

use half::f16;

use crate::program::{Attribute, Dim, HwConstraints, Op, Region, Scalar, Type, ValueId};

/// Constants of so many bytes are written in place, larger ones as resources.
pub(super) const INLINE_BYTES: usize = 128;

/// A region under construction.
#[derive(Default)]
pub(super) struct Body {
    region: Region,
    types: Vec<Type>,
    constants: HashMap<(Type, Vec<u8>), ValueId>,
}

/// A tensor type of known sizes.
pub(super) fn tensor(element: Scalar, dims: &[u64]) -> Type {
    Type::Tensor { dims: dims.iter().map(|&size| Dim::Fixed(size)).collect(), element, constraints: None }
}

/// A number as an element of a float type, or as an integer.
pub(super) fn number(element: Scalar, value: f64) -> Vec<u8> {
    match element {
        Scalar::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        Scalar::F32 => (value as f32).to_le_bytes().to_vec(),
        Scalar::F64 => value.to_le_bytes().to_vec(),
        Scalar::I64 | Scalar::U64 => (value as i64).to_le_bytes().to_vec(),
        Scalar::I32 => (value as i32).to_le_bytes().to_vec(),
        Scalar::U32 => (value as u32).to_le_bytes().to_vec(),
        Scalar::I16 => (value as i16).to_le_bytes().to_vec(),
        Scalar::U16 => (value as u16).to_le_bytes().to_vec(),
        _ => vec![value as i64 as u8],
    }
}

/// The lowest and the highest finite number of an element type.
pub(super) fn extremes(element: Scalar) -> (f64, f64) {
    match element {
        Scalar::F16 => (f16::MIN.to_f64(), f16::MAX.to_f64()),
        Scalar::F32 => (f64::from(f32::MIN), f64::from(f32::MAX)),
        _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
    }
}

/// The sizes that two tensors broadcast to; they are known to do so.
pub(super) fn joint(x: &[u64], y: &[u64]) -> Vec<u64> {
    let rank = x.len().max(y.len());
    let size = |dims: &[u64], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |axis| dims[axis]);
    (0..rank).map(|axis| if size(x, axis) == 1 { size(y, axis) } else { size(x, axis) }).collect()
}

impl Body {
    /// A region that takes values of these types.
    pub(super) fn new(arguments: Vec<Type>) -> Body {
        Body {
            types: arguments.clone(),
            region: Region { arguments, ops: Vec::new() },
            constants: HashMap::new(),
        }
    }

    /// The argument of this index.
    pub(super) fn argument(&self, index: usize) -> ValueId {
        ValueId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The type of a value.
    pub(super) fn ty(&self, id: ValueId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// The sizes of a tensor; none of a value that is no tensor.
    pub(super) fn dims(&self, id: ValueId) -> Vec<u64> {
        match self.ty(id) {
            Type::Tensor { dims, .. } => {
                dims.iter().map(|dim| if let Dim::Fixed(size) = dim { *size } else { 0 }).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The element type of a tensor.
    pub(super) fn element(&self, id: ValueId) -> Scalar {
        match self.ty(id) {
            Type::Tensor { element, .. } | Type::Scalar(element) => *element,
            _ => Scalar::Bool,
        }
    }

    /// Pushes an operation and gives its results.
    pub(super) fn push_op(
        &mut self,
        name: &'static str,
        operands: &[ValueId],
        results: Vec<Type>,
        properties: Vec<Option<Attribute>>,
        regions: Vec<Region>,
    ) -> Vec<ValueId> {
        let first = self.types.len();
        self.types.extend(results.iter().cloned());
        let (name, operands) = (Cow::Borrowed(name), operands.to_vec());
        self.region.ops.push(Op { name, properties, operands, results, regions });
        (first..self.types.len()).map(|index| self.argument(index)).collect()
    }

    /// Pushes an operation of one result.
    pub(super) fn push(&mut self, name: &'static str, operands: &[ValueId], result: Type) -> ValueId {
        self.push_op(name, operands, vec![result], Vec::new(), Vec::new())[0]
    }

    /// Pushes an operation of one result with the primitives that it stands for.
    pub(super) fn composite(
        &mut self,
        name: &'static str,
        operands: &[ValueId],
        result: Type,
        decompose: impl FnOnce(&mut Body, &[ValueId]) -> ValueId,
    ) -> ValueId {
        let mut body = Body::new(operands.iter().map(|&id| self.ty(id).clone()).collect());
        let arguments: Vec<ValueId> = (0..operands.len()).map(|index| body.argument(index)).collect();
        let yielded = decompose(&mut body, &arguments);
        let region = body.yielding(&[yielded]);
        self.push_op(name, operands, vec![result], Vec::new(), vec![region])[0]
    }

    /// Ends a region that belongs to an operation.
    pub(super) fn yielding(mut self, values: &[ValueId]) -> Region {
        self.push_op("dataflow.yield_v1", values, Vec::new(), Vec::new(), Vec::new());
        self.region
    }

    /// Ends the region of a graph.
    pub(super) fn returning(mut self, values: &[ValueId]) -> Region {
        self.push_op("dataflow.output_v1", values, Vec::new(), Vec::new(), Vec::new());
        self.region
    }

    /// A constant of elements that take whole bytes, written in place; equal ones are one value.
    pub(super) fn constant(&mut self, ty: Type, bytes: &[u8]) -> ValueId {
        if let Some(&id) = self.constants.get(&(ty.clone(), bytes.to_vec())) {
            return id;
        }
        let size = match &ty {
            Type::Tensor { element, .. } => element_bytes(*element),
            _ => 1,
        };
        let first = bytes.get(..size).filter(|first| bytes.chunks(size).all(|element| element == *first));
        let value = match first {
            Some(first) => Attribute::DenseElements { is_splat: true, bytes: first.to_vec() },
            None => Attribute::DenseElements { is_splat: false, bytes: bytes.to_vec() },
        };
        let id = self.stored(ty.clone(), value);
        self.constants.insert((ty, bytes.to_vec()), id);
        id
    }

    /// A constant whose value is an attribute already.
    pub(super) fn stored(&mut self, ty: Type, value: Attribute) -> ValueId {
        self.push_op("primitive.constant_v1", &[], vec![ty], vec![Some(value)], Vec::new())[0]
    }

    /// A tensor that holds one number everywhere.
    pub(super) fn splat(&mut self, element: Scalar, dims: &[u64], value: f64) -> ValueId {
        let (ty, bytes) = (tensor(element, dims), number(element, value));
        if let Some(&id) = self.constants.get(&(ty.clone(), bytes.clone())) {
            return id;
        }
        let id = self.stored(ty.clone(), Attribute::DenseElements { is_splat: true, bytes: bytes.clone() });
        self.constants.insert((ty, bytes), id);
        id
    }

    /// A list of sizes.
    pub(super) fn sizes(&mut self, values: &[u64]) -> ValueId {
        let bytes: Vec<u8> = values.iter().flat_map(|&value| (value as u32).to_le_bytes()).collect();
        self.constant(tensor(Scalar::U32, &[values.len() as u64]), &bytes)
    }

    /// A list of indices.
    pub(super) fn indices(&mut self, values: &[i64]) -> ValueId {
        let bytes: Vec<u8> = values.iter().flat_map(|&value| (value as i32).to_le_bytes()).collect();
        self.constant(tensor(Scalar::I32, &[values.len() as u64]), &bytes)
    }

    /// An axis, or another single index.
    pub(super) fn index(&mut self, value: i64) -> ValueId {
        self.splat(Scalar::I32, &[], value as f64)
    }

    /// A tensor of other sizes, repeated where it has size one.
    pub(super) fn broadcast(&mut self, x: ValueId, dims: &[u64]) -> ValueId {
        if self.dims(x) == dims {
            return x;
        }
        let (element, sizes) = (self.element(x), self.sizes(dims));
        self.push("primitive.broadcast_to_v1", &[x, sizes], tensor(element, dims))
    }

    /// An elementwise operation of two tensors that are broadcast first, with results of another type.
    pub(super) fn binary_to(&mut self, name: &'static str, x: ValueId, y: ValueId, to: Scalar) -> ValueId {
        let dims = joint(&self.dims(x), &self.dims(y));
        let (x, y) = (self.broadcast(x, &dims), self.broadcast(y, &dims));
        self.push(name, &[x, y], tensor(to, &dims))
    }

    /// An elementwise operation of two tensors that are broadcast first.
    pub(super) fn binary(&mut self, name: &'static str, x: ValueId, y: ValueId) -> ValueId {
        let element = self.element(x);
        self.binary_to(name, x, y, element)
    }

    /// An elementwise operation of a tensor and a number.
    pub(super) fn with_number(&mut self, name: &'static str, x: ValueId, y: f64) -> ValueId {
        let (element, dims) = (self.element(x), self.dims(x));
        let y = self.splat(element, &dims, y);
        self.push(name, &[x, y], tensor(element, &dims))
    }

    /// An elementwise operation of one tensor.
    pub(super) fn unary(&mut self, name: &'static str, x: ValueId) -> ValueId {
        let ty = self.ty(x).clone();
        self.push(name, &[x], ty)
    }

    /// The same elements in another shape.
    pub(super) fn reshape(&mut self, x: ValueId, dims: &[u64]) -> ValueId {
        if self.dims(x) == dims {
            return x;
        }
        let (element, sizes) = (self.element(x), self.sizes(dims));
        self.push("primitive.reshape_v2", &[x, sizes], tensor(element, dims))
    }

    /// Axes in another order.
    pub(super) fn transpose(&mut self, x: ValueId, order: &[usize]) -> ValueId {
        if order.is_sorted() {
            return x;
        }
        let from = self.dims(x);
        let dims: Vec<u64> = order.iter().map(|&axis| from[axis]).collect();
        let order: Vec<u64> = order.iter().map(|&axis| axis as u64).collect();
        let (element, order) = (self.element(x), self.sizes(&order));
        self.push("primitive.transpose_v1", &[x, order], tensor(element, &dims))
    }

    /// The last two axes exchanged.
    pub(super) fn swap_last(&mut self, x: ValueId) -> ValueId {
        let rank = self.dims(x).len();
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 1, rank - 2);
        self.transpose(x, &order)
    }

    /// The same numbers in another type.
    pub(super) fn cast(&mut self, x: ValueId, to: Scalar) -> ValueId {
        if self.element(x) == to {
            return x;
        }
        let dims = self.dims(x);
        self.push("primitive.cast_v1", &[x], tensor(to, &dims))
    }

    /// The same numbers in memory that nothing is said about, where something is.
    pub(super) fn unconstrained(&mut self, x: ValueId) -> ValueId {
        match self.ty(x) {
            Type::Tensor { dims, element, constraints: Some(_) } => {
                let ty = Type::Tensor { dims: dims.clone(), element: *element, constraints: None };
                self.push("ax.copy_discarding_constraints_v1", &[x], ty)
            }
            _ => x,
        }
    }

    /// The same numbers as they are to lie in memory.
    pub(super) fn constrained(&mut self, x: ValueId, constraints: &HwConstraints) -> ValueId {
        match self.ty(x) {
            Type::Tensor { dims, element, .. } => {
                let ty = Type::Tensor {
                    dims: dims.clone(),
                    element: *element,
                    constraints: Some(constraints.clone()),
                };
                self.push("ax.copy_with_constraints_v1", &[x], ty)
            }
            _ => x,
        }
    }

    /// Values one after the other along an axis.
    pub(super) fn concat(&mut self, values: &[ValueId], axis: usize) -> ValueId {
        if let [only] = values {
            return *only;
        }
        let mut dims = self.dims(values[0]);
        dims[axis] = values.iter().map(|&value| self.dims(value)[axis]).sum();
        let mut operands = vec![self.index(axis as i64)];
        operands.extend(values);
        let element = self.element(values[0]);
        self.push("primitive.concat_v1", &operands, tensor(element, &dims))
    }

    /// The part of a tensor between two corners.
    pub(super) fn slice(&mut self, x: ValueId, begin: &[i64], end: &[i64], stride: &[i64]) -> ValueId {
        let length = |axis: usize| {
            (end[axis] - begin[axis]).max(0).unsigned_abs().div_ceil(stride[axis].unsigned_abs())
        };
        let dims: Vec<u64> = (0..begin.len()).map(length).collect();
        let element = self.element(x);
        let operands = [x, self.indices(begin), self.indices(end), self.indices(stride)];
        self.push("primitive.slice_v1", &operands, tensor(element, &dims))
    }

    /// A tensor with so many zeros, or other numbers, before and after each axis.
    pub(super) fn pad(&mut self, mut x: ValueId, margins: &[(u64, u64)], value: f64) -> ValueId {
        for (axis, &(before, after)) in margins.iter().enumerate() {
            let mut parts = vec![x];
            for (count, at) in [(before, 0), (after, parts.len() + usize::from(before > 0))] {
                if count > 0 {
                    let (element, mut dims) = (self.element(x), self.dims(x));
                    dims[axis] = count;
                    let margin = self.splat(element, &dims, value);
                    parts.insert(at, margin);
                }
            }
            x = self.concat(&parts, axis);
        }
        x
    }
}

/// Bytes of an element in place; narrower ones take a whole byte.
pub(super) fn element_bytes(element: Scalar) -> usize {
    match element {
        Scalar::F64 | Scalar::I64 | Scalar::U64 => 8,
        Scalar::F32 | Scalar::I32 | Scalar::U32 => 4,
        Scalar::F16 | Scalar::Bf16 | Scalar::I16 | Scalar::U16 => 2,
        _ => 1,
    }
}
