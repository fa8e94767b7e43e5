//! Arguments of which only the types are known, for testing type rules.

use crate::mil::op::{ArgValue, Bindings, Call, OpError};
use crate::mil::{Opset, Type};

/// Types by parameter name; a repeated name makes a list.
#[derive(Default)]
pub(super) struct Typed<'a> {
    pub(super) arguments: &'a [(&'a str, Type)],
    pub(super) blocks: &'a [Vec<Type>],
}

/// The types an operation gives.
pub(super) fn infer(name: &str, opset: Opset, typed: &Typed<'_>) -> Result<Vec<Type>, OpError> {
    let def = super::find(name, opset).unwrap_or_else(|| panic!("no `{name}` in {opset}"));
    let mut params = vec![Vec::new(); def.params.len()];
    for (parameter, ty) in typed.arguments {
        let param = def.params.iter().position(|p| p.name == *parameter);
        params[param.unwrap_or_else(|| panic!("no parameter `{parameter}`"))].push(ty.clone());
    }
    let bindings = Bound { params, blocks: typed.blocks };
    (def.infer)(&Call::new(def, opset, 1, &bindings))
}

struct Bound<'a> {
    params: Vec<Vec<Type>>,
    blocks: &'a [Vec<Type>],
}

impl Bindings for Bound<'_> {
    fn count(&self, param: usize) -> usize {
        self.params[param].len()
    }

    fn ty(&self, param: usize, index: usize) -> &Type {
        &self.params[param][index]
    }

    fn value(&self, _: usize, _: usize) -> Option<ArgValue<'_>> {
        None
    }

    fn block_outputs(&self, block: usize) -> Option<Vec<Type>> {
        self.blocks.get(block).cloned()
    }
}
