//! One operation applied to tensors at hand: for folding constants and for tests.

use std::sync::Arc;

use super::{
    ArgValue, Bindings, Call, Decode, Eval, Kernel, Numerics, OpDef, OpError, Output, OutputBuffer, Outputs,
    Result, Scratch,
};
use crate::{Dim, Opset, TensorType, Type};
use anemeter_kernels::tensor::{AlignedBuf, Tensor};

/// Arguments that are all known: per parameter of the definition, the values bound to it.
pub struct KnownArguments {
    params: Vec<Vec<(Type, KnownValue)>>,
}

/// An argument that is known before a prediction.
#[derive(Debug, Clone)]
pub enum KnownValue {
    /// A plain tensor.
    Tensor(Tensor),
    /// A compressed weight.
    Packed(Arc<dyn Decode>),
}

impl From<Tensor> for KnownValue {
    fn from(tensor: Tensor) -> KnownValue {
        KnownValue::Tensor(tensor)
    }
}

impl From<Arc<dyn Decode>> for KnownValue {
    fn from(packed: Arc<dyn Decode>) -> KnownValue {
        KnownValue::Packed(packed)
    }
}

impl KnownArguments {
    /// No arguments yet for an operation.
    pub fn new(def: &OpDef) -> KnownArguments {
        KnownArguments { params: vec![Vec::new(); def.params.len()] }
    }

    /// Binds one more value to parameter `param`.
    pub fn bind(&mut self, param: usize, value: impl Into<KnownValue>) {
        let value = value.into();
        let ty = match &value {
            KnownValue::Tensor(tensor) => TensorType::fixed(tensor.dtype(), tensor.shape()),
            KnownValue::Packed(packed) => TensorType::fixed(packed.dtype(), packed.shape()),
        };
        self.params[param].push((ty.into(), value));
    }
}

impl Bindings for KnownArguments {
    fn count(&self, param: usize) -> usize {
        self.params[param].len()
    }

    fn ty(&self, param: usize, index: usize) -> &Type {
        &self.params[param][index].0
    }

    fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>> {
        Some(match &self.params[param][index].1 {
            KnownValue::Tensor(tensor) => ArgValue::Shared(tensor),
            KnownValue::Packed(packed) => ArgValue::Packed(packed),
        })
    }
}

/// Evaluates one operation. Compressed results are decoded.
pub fn apply(
    def: &'static OpDef,
    opset: Opset,
    numerics: Numerics,
    arguments: &KnownArguments,
    outputs: usize,
) -> Result<Vec<Tensor>> {
    let call = Call::new(def, opset, outputs, arguments).with_numerics(numerics);
    let types = (def.infer)(&call)?;
    match def.eval {
        Eval::Kernel(kernel) => apply_kernel(kernel, &call, &types),
        Eval::Constexpr(decoder) => decoder(&call)?.iter().map(|weight| decode_all(&**weight)).collect(),
        Eval::Executor => refuse!("`{}` is not a function of its arguments", def.name),
    }
}

fn apply_kernel(kernel: Kernel, call: &Call<'_>, types: &[Type]) -> Result<Vec<Tensor>> {
    let mut buffers = vec![AlignedBuf::default(); types.len()];
    let mut scratch = Scratch::default();
    let mut slots = Vec::with_capacity(types.len());
    for (ty, buffer) in types.iter().zip(&mut buffers) {
        let tensor = storage_type(ty)?;
        let shape = tensor.concrete();
        slots.push(Output {
            dtype: tensor.dtype,
            shape,
            buffer: OutputBuffer::Growable { buffer, limit: usize::MAX },
        });
    }
    kernel(call, &mut Outputs::new(&mut slots, &mut scratch))?;
    let done: Vec<_> = slots.into_iter().map(|slot| (slot.dtype, slot.shape)).collect();
    done.into_iter()
        .zip(buffers)
        .map(|((dtype, shape), buffer)| {
            let shape = shape.ok_or_else(|| OpError::new("an output was left without a shape"))?;
            Ok(Tensor::new(dtype, shape, buffer.into())?)
        })
        .collect()
}

/// How a value is kept while a program runs: a list is one tensor with the list's length in front, a dictionary the tensor of its
/// values.
pub fn storage_type(ty: &Type) -> Result<TensorType> {
    match ty {
        Type::Tensor(tensor) | Type::State(tensor) => Ok(tensor.clone()),
        Type::List(element, length) => {
            let element = storage_type(element)?;
            let shape = [*length].into_iter().chain(element.shape).collect();
            Ok(TensorType::new(element.dtype, shape))
        }
        Type::Dictionary(_, value) => {
            let value = storage_type(value)?;
            let shape = [Dim::Unknown].into_iter().chain(value.shape).collect();
            Ok(TensorType::new(value.dtype, shape))
        }
        Type::Tuple(_) => refuse!("a {ty} cannot be computed"),
    }
}

/// A compressed weight as a plain tensor.
pub fn decode_all(weight: &dyn Decode) -> Result<Tensor> {
    let elements: usize = weight.shape().iter().product();
    let mut values = vec![0.0; elements];
    weight.decode(0..elements, &mut values);
    Ok(anemeter_kernels::convert::from_f32(weight.dtype(), weight.shape(), &values)?)
}
