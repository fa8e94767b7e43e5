//! Running one operation in a test.

use crate::mil::Opset;
use crate::mil::op::{KnownArguments, Numerics, OpError, apply};
use crate::tensor::Tensor;

/// Evaluates an operation with one output on named tensors; a repeated name makes a list.
pub(super) fn run(name: &str, opset: Opset, args: &[(&str, Tensor)]) -> Result<Vec<Tensor>, OpError> {
    run_many(name, opset, args, 1)
}

/// Evaluates an operation with several outputs.
pub(super) fn run_many(
    name: &str,
    opset: Opset,
    args: &[(&str, Tensor)],
    outputs: usize,
) -> Result<Vec<Tensor>, OpError> {
    let def = super::find(name, opset).unwrap_or_else(|| panic!("no `{name}` in {opset}"));
    let mut arguments = KnownArguments::new(def);
    for (parameter, tensor) in args {
        let param = def.params.iter().position(|p| p.name == *parameter);
        arguments.bind(param.unwrap_or_else(|| panic!("no parameter `{parameter}`")), tensor.clone());
    }
    apply(def, opset, Numerics::Fast, &arguments, outputs)
}
