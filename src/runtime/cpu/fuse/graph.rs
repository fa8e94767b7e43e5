//! The steps of a plan as a graph: who makes a value, and how often it is used.

use crate::kernels::convert::to_f32;
use crate::mil::op::KnownValue;
use crate::mil::propagate::Facts;
use crate::runtime::cpu::plan::{Action, Constant, Operand, Step};
use crate::runtime::cpu::views::Aliases;
use crate::tensor::{DType, Shape};

/// What is known of the values of a plan.
#[derive(Clone, Copy)]
pub(in crate::runtime::cpu) struct Values<'a> {
    pub(in crate::runtime::cpu) aliases: &'a Aliases,
    pub(in crate::runtime::cpu) facts: &'a Facts,
    pub(in crate::runtime::cpu) constants: &'a [Constant],
}

/// What patterns look at.
pub(super) struct Graph<'a> {
    pub(super) steps: &'a [Step],
    values: Values<'a>,
    producers: Vec<Option<usize>>,
    uses: Vec<usize>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(steps: &'a [Step], outputs: &[(String, usize)], values: Values<'a>) -> Graph<'a> {
        let count = values.facts.types.len();
        let mut graph = Graph { steps, values, producers: vec![None; count], uses: vec![0; count] };
        for (at, step) in steps.iter().enumerate() {
            step.outputs.iter().for_each(|&value| graph.producers[value] = Some(at));
            graph.count(step);
        }
        outputs.iter().for_each(|&(_, value)| graph.uses[values.aliases.root(value)] += 1);
        graph
    }

    fn count(&mut self, step: &Step) {
        for operand in step.arguments.iter().flatten() {
            if let Operand::Value(value) = operand {
                self.uses[self.values.aliases.root(*value)] += 1;
            }
        }
        for block in step.action.nested() {
            block.outputs.iter().for_each(|&value| self.uses[self.values.aliases.root(value)] += 1);
            block.steps.iter().for_each(|step| self.count(step));
        }
    }

    /// A step that is carried out by the kernel of this operation.
    pub(super) fn is(&self, step: usize, kind: &str) -> bool {
        self.steps[step].def.name == kind && matches!(self.steps[step].action, Action::Kernel)
    }

    /// The step of this kind that computes an operand.
    pub(super) fn made_by(&self, operand: Operand, kind: &str) -> Option<usize> {
        let Operand::Value(value) = operand else { return None };
        self.producers[self.values.aliases.root(value)].filter(|&step| self.is(step, kind))
    }

    /// What a step takes for a parameter.
    pub(super) fn argument(&self, step: usize, name: &str) -> Option<Operand> {
        let step = &self.steps[step];
        let param = step.def.params.iter().position(|param| param.name == name)?;
        step.arguments[param].first().copied()
    }

    /// Whether all uses of what a step gives are the given number.
    pub(super) fn is_used(&self, step: usize, times: usize) -> bool {
        matches!(self.steps[step].outputs[..], [value] if self.uses[value] == times)
    }

    /// Whether two operands are the same value.
    pub(super) fn same(a: Operand, b: Operand) -> bool {
        match (a, b) {
            (Operand::Value(a), Operand::Value(b)) => a == b,
            (Operand::Constant(a), Operand::Constant(b)) => a == b,
            _ => false,
        }
    }

    /// The shape of an fp16 value, if it is known.
    pub(super) fn half_shape(&self, operand: Operand) -> Option<Shape> {
        let ty = match operand {
            Operand::Value(value) => &self.values.facts.types[value],
            Operand::Constant(constant) => &self.values.constants[constant].ty,
        };
        ty.tensor().filter(|ty| ty.dtype == DType::F16)?.concrete()
    }

    /// The numbers of a short constant.
    pub(super) fn numbers(&self, operand: Operand) -> Option<Vec<f32>> {
        const LONGEST: usize = 16;
        let known = match operand {
            Operand::Value(value) => self.values.facts.known[value].as_ref()?,
            Operand::Constant(constant) => &self.values.constants[constant].value,
        };
        let KnownValue::Tensor(tensor) = known else { return None };
        let view = tensor.view();
        let mut numbers = vec![0.0; view.len().min(LONGEST + 1)];
        let count = numbers.len();
        to_f32(&view, 0..count, &mut numbers);
        (count <= LONGEST).then_some(numbers)
    }
}
