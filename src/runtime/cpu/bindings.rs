//! Where a step finds its arguments while it runs.

use std::ops::Range;

use super::memory::{GrowableTensor, ReadableArena};
use super::plan::{Operand, Place, Plan, Step};
use anemeter_kernels::tensor::{Tensor, TensorView};
use anemeter_mil::Type;
use anemeter_mil::op::{ArgValue, Bindings, KnownValue, OpError};

pub(super) fn plain(known: &KnownValue) -> Result<&Tensor, OpError> {
    match known {
        KnownValue::Tensor(tensor) => Ok(tensor),
        KnownValue::Packed(_) => Err(OpError::new("a compressed weight is not a plain tensor")),
    }
}

/// Everything a value can be read from, except the arena.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) plan: &'a Plan,
    pub(super) inputs: &'a [TensorView<'a>],
    pub(super) states: &'a [GrowableTensor],
    pub(super) slots: &'a [usize],
}

impl<'a> Places<'a> {
    pub(super) fn view(
        &self,
        value: usize,
        arena: impl FnOnce(Range<usize>) -> Option<&'a [u8]>,
        grown: &'a [GrowableTensor],
    ) -> Result<TensorView<'a>, OpError> {
        let planned = &self.plan.values[value];
        match planned.place {
            Place::Constant(constant) => Ok(plain(&self.plan.constants[constant].value)?.view()),
            Place::Input(input) => Ok(self.inputs[input]),
            Place::State(state) => {
                self.states[self.slots[state]].view().ok_or_else(|| OpError::new("the state is empty"))
            }
            Place::InputView { input, offset, len } => {
                self.part(value, self.inputs[input].bytes(), offset..offset + len)
            }
            Place::StateView { state, offset, len } => {
                self.part(value, &self.states[self.slots[state]].buffer, offset..offset + len)
            }
            Place::Growable(slot) => grown[slot].view().ok_or_else(|| OpError::new("a value is not there")),
            Place::Arena { offset, len } => {
                let bytes =
                    arena(offset..offset + len).ok_or_else(|| OpError::new("a value is not there"))?;
                self.part(value, bytes, 0..len)
            }
            Place::Nowhere => Err(OpError::new("a value is not there")),
        }
    }

    /// A value whose bytes are some of those given.
    fn part(&self, value: usize, bytes: &'a [u8], range: Range<usize>) -> Result<TensorView<'a>, OpError> {
        let planned = &self.plan.values[value];
        let bytes = bytes.get(range).ok_or_else(|| OpError::new("a value is not there"))?;
        let shape = planned.shape.as_ref().ok_or_else(|| OpError::new("a value has no shape"))?;
        Ok(TensorView::new(planned.dtype, shape, bytes)?)
    }
}

/// The arguments of a step while it runs.
pub(super) struct StepBindings<'a, 'arena> {
    pub(super) step: &'a Step,
    pub(super) places: Places<'a>,
    pub(super) readable: &'a ReadableArena<'arena>,
    pub(super) grown: &'a [GrowableTensor],
}

impl Bindings for StepBindings<'_, '_> {
    fn count(&self, param: usize) -> usize {
        self.step.arguments[param].len()
    }

    fn ty(&self, param: usize, index: usize) -> &Type {
        let plan = self.places.plan;
        match self.step.arguments[param][index] {
            Operand::Constant(constant) => &plan.constants[constant].ty,
            Operand::Value(value) => match plan.values[value].place {
                Place::Growable(slot) => &self.grown[slot].ty,
                Place::Constant(constant) => &plan.constants[constant].ty,
                _ => &plan.values[value].ty,
            },
        }
    }

    fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>> {
        let plan = self.places.plan;
        let constant = match self.step.arguments[param][index] {
            Operand::Constant(constant) => Some(constant),
            Operand::Value(value) => match plan.values[value].place {
                Place::Constant(constant) => Some(constant),
                _ => None,
            },
        };
        if let Some(constant) = constant {
            return Some(match &plan.constants[constant].value {
                KnownValue::Tensor(tensor) => ArgValue::Shared(tensor),
                KnownValue::Packed(weight) => ArgValue::Packed(weight),
            });
        }
        let Operand::Value(value) = self.step.arguments[param][index] else { return None };
        self.places.view(value, |range| self.readable.get(range), self.grown).ok().map(ArgValue::View)
    }
}
