//! Values that are parts of other values: reshaped, or consecutive elements of them.

use super::plan::{Constant, Operand};
use anemeter_mil::op::{ArgValue, Bindings, Call, KnownValue, OpDef};
use anemeter_mil::{Opset, Type};
use smallvec::SmallVec;

/// Of each value, the value it is a part of and where in it it begins.
pub(super) struct Aliases {
    views: Vec<Option<View>>,
}

/// A part of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// The value it is a part of, which is no part itself.
    pub(super) of: usize,
    pub(super) offset: usize,
}

impl Aliases {
    pub(super) fn new(values: usize) -> Aliases {
        Aliases { views: vec![None; values] }
    }

    pub(super) fn len(&self) -> usize {
        self.views.len()
    }

    /// What a value is a part of, if anything.
    pub(super) fn view(&self, value: usize) -> Option<View> {
        self.views[value]
    }

    /// The value whose memory a value uses.
    pub(super) fn root(&self, value: usize) -> usize {
        self.views[value].map_or(value, |view| view.of)
    }

    /// Whether an operand uses the memory of a value.
    pub(super) fn reads(&self, operand: Operand, root: usize) -> bool {
        matches!(operand, Operand::Value(value) if self.root(value) == root)
    }

    /// Makes `value` a part of `whole` from a byte on.
    pub(super) fn add(&mut self, value: usize, whole: usize, offset: usize) {
        let base = self.views[whole].unwrap_or(View { of: whole, offset: 0 });
        self.views[value] = Some(View { of: base.of, offset: base.offset + offset });
    }
}

/// The byte of `x` at which the result of an operation begins, if the result is bytes of `x` in their order.
pub(super) fn first_byte(def: &'static OpDef, opset: Opset, bindings: &PlanBindings<'_>) -> Option<usize> {
    let call = Call::new(def, opset, 1, bindings);
    let first = def.first_element(&call)?;
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
