//! Calls that tests make beyond plain ones: fp16-exact arithmetic, compressed weights, types alone.

use std::ops::Range;
use std::sync::Arc;

use crate::kernels::convert::to_f32;
use crate::mil::op::{
    ArgValue, Bindings, Call, Decode, KnownArguments, KnownValue, Numerics, OpDef, OpError, apply,
};
use crate::mil::{Opset, TensorType, Type};
use crate::tensor::{DType, Tensor};

fn definition(name: &str, opset: Opset) -> &'static OpDef {
    super::find(name, opset).unwrap_or_else(|| panic!("no `{name}` in {opset}"))
}

fn parameter(def: &OpDef, name: &str) -> usize {
    def.params.iter().position(|p| p.name == name).unwrap_or_else(|| panic!("no parameter `{name}`"))
}

/// The single output of an operation under the given arithmetic; arguments may be compressed.
pub(super) fn call(name: &str, numerics: Numerics, args: &[(&str, KnownValue)]) -> Result<Tensor, OpError> {
    let def = definition(name, Opset::Ios18);
    let mut arguments = KnownArguments::new(def);
    for (name, value) in args {
        arguments.bind(parameter(def, name), value.clone());
    }
    Ok(apply(def, Opset::Ios18, numerics, &arguments, 1)?.remove(0))
}

/// A weight that counts as compressed and decodes to the given tensor.
pub(super) fn compressed(tensor: Tensor) -> KnownValue {
    struct Plain(Tensor);
    impl Decode for Plain {
        fn dtype(&self) -> DType {
            self.0.dtype()
        }
        fn shape(&self) -> &[usize] {
            self.0.shape()
        }
        fn decode(&self, range: Range<usize>, out: &mut [f32]) {
            to_f32(&self.0.view(), range, out);
        }
        fn stored_bytes(&self) -> usize {
            0
        }
    }
    let weight: Arc<dyn Decode> = Arc::new(Plain(tensor));
    weight.into()
}

/// The output type of a call of which only types are known, and the values of some constants.
pub(super) fn infer(
    name: &str,
    types: &[(&str, TensorType)],
    constants: &[(&str, Tensor)],
) -> Result<TensorType, OpError> {
    struct Typed(Vec<Vec<(Type, Option<Tensor>)>>);
    impl Bindings for Typed {
        fn count(&self, param: usize) -> usize {
            self.0[param].len()
        }
        fn ty(&self, param: usize, index: usize) -> &Type {
            &self.0[param][index].0
        }
        fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>> {
            self.0[param][index].1.as_ref().map(ArgValue::Shared)
        }
    }
    let def = definition(name, Opset::Ios18);
    let mut bindings = Typed(vec![Vec::new(); def.params.len()]);
    for (name, ty) in types {
        bindings.0[parameter(def, name)].push((ty.clone().into(), None));
    }
    for (name, tensor) in constants {
        let ty = TensorType::fixed(tensor.dtype(), tensor.shape());
        bindings.0[parameter(def, name)].push((ty.into(), Some(tensor.clone())));
    }
    let types = (def.infer)(&Call::new(def, Opset::Ios18, 1, &bindings))?;
    Ok(types[0].tensor().cloned().unwrap_or_else(|| panic!("{} is not a tensor", types[0])))
}
