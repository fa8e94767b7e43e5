//! What tests of operations share: tensors of a few numbers, and running one operation on tensors.

use std::fmt::{Debug, Display};
use std::ops::Range;
use std::sync::Arc;

use half::f16;

use crate::Opset;
use crate::op::{Decode, KnownArguments, KnownValue, Numerics, OpDef, Result, apply};
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::packed::pack;
use anemeter_kernels::tensor::{DType, Element, Tensor};

pub(super) fn tensor<T: Element>(shape: &[usize], values: &[T]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}

pub(super) fn bools(shape: &[usize], values: &[bool]) -> Tensor {
    Tensor::from_bools(shape, values).unwrap()
}

pub(super) fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    tensor(shape, values)
}

pub(super) fn halves(shape: &[usize], values: &[f32]) -> Tensor {
    let values: Vec<_> = values.iter().map(|&x| f16::from_f32(x)).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

/// A tensor of a type narrower than a byte.
pub(super) fn packed(dtype: DType, shape: &[usize], values: &[i8]) -> Tensor {
    let bytes = pack(values.iter().map(|v| v.cast_unsigned()), dtype.bits());
    Tensor::new(dtype, shape.into(), bytes.into()).unwrap()
}

pub(super) fn ints(values: &[i32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).unwrap()
}

pub(super) fn text(name: &'static str, text: &str) -> (&'static str, Tensor) {
    (name, Tensor::from_text(text))
}

pub(super) fn definition(name: &str, opset: Opset) -> &'static OpDef {
    super::find(name, opset).unwrap_or_else(|| panic!("no `{name}` in {opset}"))
}

pub(super) fn parameter(def: &OpDef, name: &str) -> usize {
    def.params.iter().position(|p| p.name == name).unwrap_or_else(|| panic!("no parameter `{name}`"))
}

/// Arguments by name; a repeated name makes a list.
pub(super) fn arguments<V: Clone + Into<KnownValue>>(def: &OpDef, args: &[(&str, V)]) -> KnownArguments {
    let mut arguments = KnownArguments::new(def);
    for (name, value) in args {
        arguments.bind(parameter(def, name), value.clone());
    }
    arguments
}

/// Evaluates an operation with one output on named tensors; a repeated name makes a list.
pub(super) fn run(name: &str, opset: Opset, args: &[(&str, Tensor)]) -> Result<Vec<Tensor>> {
    run_many(name, opset, args, 1)
}

/// Evaluates an operation with several outputs.
pub(super) fn run_many(
    name: &str,
    opset: Opset,
    args: &[(&str, Tensor)],
    outputs: usize,
) -> Result<Vec<Tensor>> {
    let def = definition(name, opset);
    apply(def, opset, Numerics::Fast, &arguments(def, args), outputs)
}

/// The elements of the first output.
#[track_caller]
pub(super) fn output<T: Element>(outputs: Result<Vec<Tensor>>) -> Vec<T> {
    outputs.unwrap()[0].view().slice().unwrap().to_vec()
}

/// Checks the shape and the elements of the first output.
#[track_caller]
pub(super) fn gives<T: Element + Debug + PartialEq>(
    outputs: Result<Vec<Tensor>>,
    shape: &[usize],
    values: &[T],
) {
    let outputs = outputs.unwrap();
    assert_eq!(outputs[0].shape(), shape);
    assert_eq!(outputs[0].view().slice::<T>().unwrap(), values);
}

/// Checks that numbers lie within `bound` of what is expected, and are NaN where that is.
#[track_caller]
pub(super) fn near(what: &str, found: &Tensor, expected: &[f32], bound: f32) {
    let found = found.view().slice::<f32>().unwrap();
    let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= bound || a.is_nan() && b.is_nan();
    let all = found.len() == expected.len() && found.iter().zip(expected).all(is_near);
    assert!(all, "{what}: {found:?} is not {expected:?}");
}

/// Checks why something was refused.
#[track_caller]
pub(super) fn refused<T: Debug, E: Debug + Display>(result: Result<T, E>, reason: &str) {
    assert_eq!(result.unwrap_err().to_string(), reason);
}

/// The single output of an operation under the given arithmetic; arguments may be compressed.
pub(super) fn call(name: &str, numerics: Numerics, args: &[(&str, KnownValue)]) -> Result<Tensor> {
    let def = definition(name, Opset::Ios18);
    Ok(apply(def, Opset::Ios18, numerics, &arguments(def, args), 1)?.remove(0))
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
