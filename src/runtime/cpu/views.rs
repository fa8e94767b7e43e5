//! Values that are parts of other values: reshaped, or consecutive elements of them.

use super::plan::{Constant, Operand};
use crate::mil::op::{ArgValue, Bindings, Call, KnownValue, OpDef};
use crate::mil::{Opset, Type, ops};
use smallvec::SmallVec;

/// Of each value, the value it is a part of and where in it it begins.
pub(super) struct Aliases {
    parts: Vec<Option<Part>>,
}

/// A part of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The value it is a part of, which is no part itself.
    pub(super) of: usize,
    /// Its first byte.
    pub(super) offset: usize,
}

impl Aliases {
    pub(super) fn new(values: usize) -> Aliases {
        Aliases { parts: vec![None; values] }
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// What a value is a part of, if anything.
    pub(super) fn part(&self, value: usize) -> Option<Part> {
        self.parts[value]
    }

    /// The value whose memory a value uses.
    pub(super) fn root(&self, value: usize) -> usize {
        self.parts[value].map_or(value, |part| part.of)
    }

    /// Whether an operand uses the memory of a value.
    pub(super) fn reads(&self, operand: Operand, root: usize) -> bool {
        matches!(operand, Operand::Value(value) if self.root(value) == root)
    }

    /// Makes `value` a part of `whole` from a byte on.
    pub(super) fn add(&mut self, value: usize, whole: usize, offset: usize) {
        let base = self.parts[whole].unwrap_or(Part { of: whole, offset: 0 });
        self.parts[value] = Some(Part { of: base.of, offset: base.offset + offset });
    }
}

/// The byte of `x` at which the result of an operation begins, if the result is bytes of `x` in their order.
pub(super) fn first_byte(def: &'static OpDef, opset: Opset, bindings: &PlanBindings<'_>) -> Option<usize> {
    let call = Call::new(def, opset, 1, bindings);
    let first = ops::views::first_element(def.name, &call)?;
    call.ty("x").ok()?.dtype.byte_len(first)
}

/// Arguments while a plan is made: types, and the values of constants.
pub(super) struct PlanBindings<'a> {
    pub(super) operands: &'a [SmallVec<[Operand; 1]>],
    pub(super) constants: &'a [Constant],
    pub(super) types: &'a [Type],
    pub(super) known: &'a [Option<KnownValue>],
}

impl Bindings for PlanBindings<'_> {
    fn count(&self, param: usize) -> usize {
        self.operands[param].len()
    }

    fn ty(&self, param: usize, index: usize) -> &Type {
        match self.operands[param][index] {
            Operand::Constant(constant) => &self.constants[constant].ty,
            Operand::Value(value) => &self.types[value],
        }
    }

    fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>> {
        let known = match self.operands[param][index] {
            Operand::Constant(constant) => Some(&self.constants[constant].value),
            Operand::Value(value) => self.known[value].as_ref(),
        };
        Some(match known? {
            KnownValue::Tensor(tensor) => ArgValue::Shared(tensor),
            KnownValue::Packed(weight) => ArgValue::Packed(weight),
        })
    }
}
