//! Calls of which only the types are known, for testing type rules.

use super::testing::{definition, parameter};
use crate::op::{ArgValue, Bindings, Call, Result};
use crate::{Opset, TensorType, Type};
use anemeter_kernels::tensor::Tensor;

/// What is known of a call, by parameter name; a repeated name makes a list.
#[derive(Default)]
pub(super) struct Typed<'a> {
    pub(super) arguments: &'a [(&'a str, Type)],
    pub(super) constants: &'a [(&'a str, Tensor)],
    pub(super) blocks: &'a [Vec<Type>],
}

/// The types an operation gives.
pub(super) fn infer(name: &str, opset: Opset, typed: &Typed<'_>) -> Result<Vec<Type>> {
    let def = definition(name, opset);
    let mut params = vec![Vec::new(); def.params.len()];
    for (name, ty) in typed.arguments {
        params[parameter(def, name)].push((ty.clone(), None));
    }
    for (name, tensor) in typed.constants {
        let ty = TensorType::fixed(tensor.dtype(), tensor.shape()).into();
        params[parameter(def, name)].push((ty, Some(tensor.clone())));
    }
    let bindings = Bound { params, blocks: typed.blocks };
    (def.infer)(&Call::new(def, opset, 1, &bindings))
}

/// The type of the one tensor that an operation gives.
pub(super) fn infer_tensor(
    name: &str,
    types: &[(&str, TensorType)],
    constants: &[(&str, Tensor)],
) -> Result<TensorType> {
    let arguments: Vec<_> = types.iter().map(|(name, ty)| (*name, ty.clone().into())).collect();
    let typed = Typed { arguments: &arguments, constants, ..Typed::default() };
    let types = infer(name, Opset::Ios18, &typed)?;
    Ok(types[0].tensor().cloned().unwrap_or_else(|| panic!("{} is not a tensor", types[0])))
}

struct Bound<'a> {
    params: Vec<Vec<(Type, Option<Tensor>)>>,
    blocks: &'a [Vec<Type>],
}

impl Bindings for Bound<'_> {
    fn count(&self, param: usize) -> usize {
        self.params[param].len()
    }

    fn ty(&self, param: usize, index: usize) -> &Type {
        &self.params[param][index].0
    }

    fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>> {
        self.params[param][index].1.as_ref().map(ArgValue::Shared)
    }

    fn block_outputs(&self, block: usize) -> Option<Vec<Type>> {
        self.blocks.get(block).cloned()
    }
}
