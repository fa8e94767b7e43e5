//! The steps of a plan as a graph: who makes a value, and how often it is used.

use std::ops::Range;

use half::f16;
use smallvec::{SmallVec, smallvec};

use crate::cpu::plan::{Action, Constant, Operand, Step};
use crate::cpu::views::{Aliases, PlanBindings};
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::{DType, Shape};
use anemeter_mil::cost::Cost;
use anemeter_mil::op::{Call, KnownValue, Weight};
use anemeter_mil::ops::slice;
use anemeter_mil::propagate::Facts;

/// The kind of step that takes a part of a tensor.
pub(super) const SLICE: &str = "slice_by_index";

/// What is known of the values of a plan.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Values<'a> {
    pub(in crate::cpu) aliases: &'a Aliases,
    pub(in crate::cpu) facts: &'a Facts,
    pub(in crate::cpu) constants: &'a [Constant],
}

/// What patterns look at.
pub(super) struct Graph<'a> {
    pub(super) steps: &'a [Step],
    values: Values<'a>,
    producers: Vec<Option<usize>>,
    uses: Vec<usize>,
    users: Vec<SmallVec<[usize; 4]>>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(steps: &'a [Step], outputs: &[(String, usize)], values: Values<'a>) -> Graph<'a> {
        let count = values.facts.types.len();
        let (producers, uses, users) = (vec![None; count], vec![0; count], vec![SmallVec::new(); count]);
        let mut graph = Graph { steps, values, producers, uses, users };
        for (at, step) in steps.iter().enumerate() {
            step.outputs.iter().for_each(|&value| graph.producers[value] = Some(at));
            graph.count(step);
            for operand in step.arguments.iter().flatten() {
                if let Operand::Value(value) = *operand {
                    graph.users[value].push(at);
                }
            }
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

    /// The steps that take a value itself, in order; not those of nested blocks.
    pub(super) fn users(&self, operand: Operand) -> &[usize] {
        match operand {
            Operand::Value(value) => &self.users[value],
            Operand::Constant(_) => &[],
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

    /// The step of this kind that computes an operand, all of it, for the given number of uses.
    pub(super) fn made_for(&self, uses: usize, operand: Operand, kind: &str) -> Option<usize> {
        let step = self.made_by(operand, kind).filter(|&step| self.is_used(step, uses))?;
        Graph::same(operand, Operand::Value(self.steps[step].outputs[0])).then_some(step)
    }

    /// The step that makes an operand of a run of one axis of `whole` for one use, or no step if it is where it was.
    /// `None` if it is anything else.
    pub(super) fn cut_from(
        &self,
        whole: Operand,
        (axis, range): (usize, Range<usize>),
        operand: Operand,
    ) -> Option<SmallVec<[usize; 1]>> {
        if let Some(step) = self.made_for(1, operand, SLICE) {
            let fits = Graph::same(self.argument(step, "x")?, whole) && self.run_of(step, axis)? == range;
            return fits.then(|| smallvec![step]);
        }
        let (Operand::Value(value), Operand::Value(from)) = (operand, whole) else { return None };
        let mut shape = self.half_shape(whole)?;
        let inner: usize = shape[axis + 1..].iter().product();
        let (view, root) = (self.values.aliases.view(value)?, self.values.aliases.root(from));
        let base = self.values.aliases.view(from).map_or(0, |view| view.offset);
        let outer: usize = shape[..axis].iter().product();
        shape[axis] = range.len();
        let fits = view.of == root
            && view.offset == base + range.start * inner * size_of::<f16>()
            && outer == 1
            && self.half_shape(operand)? == shape;
        fits.then(SmallVec::new)
    }

    /// What a slice takes of one axis, if it takes all of every other.
    pub(super) fn run_of(&self, step: usize, axis: usize) -> Option<Range<usize>> {
        let Step { def, arguments: operands, .. } = self.steps.get(step).filter(|_| self.is(step, SLICE))?;
        slice::run_of(axis, &Call::new(def, def.since, 1, &self.bindings(operands)))
    }

    fn bindings<'g>(&'g self, operands: &'g [SmallVec<[Operand; 1]>]) -> PlanBindings<'g> {
        let Values { facts: Facts { types, known }, constants, .. } = self.values;
        PlanBindings { operands, constants, types, known }
    }

    pub(super) fn flops(&self, step: usize) -> u64 {
        let Step { def, arguments, outputs, fused_flops, .. } = &self.steps[step];
        let first = outputs.first().and_then(|&value| self.values.facts.types[value].tensor());
        let cost = || Cost::of_call((def, def.since), &self.bindings(arguments), first, 0);
        fused_flops.unwrap_or_else(|| cost().flops)
    }

    /// What a step takes for a parameter.
    pub(super) fn argument(&self, step: usize, name: &str) -> Option<Operand> {
        self.arguments(step, name)?.first().copied()
    }

    /// All of what a step takes for a parameter.
    pub(super) fn arguments(&self, step: usize, name: &str) -> Option<&[Operand]> {
        self.steps[step].argument(name)
    }

    /// Whether all uses of what a step gives are the given number.
    pub(super) fn is_used(&self, step: usize, times: usize) -> bool {
        matches!(self.steps[step].outputs[..], [value] if self.uses[value] == times)
    }

    /// Whether a step takes `true` for a parameter.
    pub(super) fn is_set(&self, step: usize, flag: &str) -> bool {
        self.argument(step, flag).and_then(|flag| self.numbers(flag)).is_some_and(|flag| flag == [1.0])
    }

    /// Whether the axis of a step is this one of `rank`; the last if it names none.
    pub(super) fn is_along(&self, step: usize, axis: usize, rank: usize) -> bool {
        let Some(named) = self.argument(step, "axis") else { return axis + 1 == rank };
        self.numbers(named)
            .is_some_and(|named| named == [axis as f32] || named == [axis as f32 - rank as f32])
    }

    /// Whether some of the steps may change what a value that was read before them holds.
    ///
    /// A fused step reads its operands later than the steps it stands for: a state that they lie in must still be
    /// what it was.
    pub(super) fn changes_memory(&self, mut steps: Range<usize>) -> bool {
        steps.any(|step| {
            let step = &self.steps[step];
            !matches!(step.action, Action::Kernel) || step.def.name.contains("state")
        })
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

    /// The fp16 number that a constant without dimensions is.
    pub(super) fn scalar(&self, operand: Operand) -> Option<f32> {
        let shape = self.half_shape(operand)?;
        self.numbers(operand)?.first().copied().filter(|_| shape.is_empty())
    }

    fn known(&self, operand: Operand) -> Option<&'a KnownValue> {
        match operand {
            Operand::Value(value) => self.values.facts.known[value].as_ref(),
            Operand::Constant(constant) => Some(&self.values.constants[constant].value),
        }
    }

    pub(super) fn weight(&self, operand: Operand) -> Option<Weight<'a>> {
        Some(match self.known(operand)? {
            KnownValue::Tensor(tensor) => Weight::Dense(tensor.view()),
            KnownValue::Packed(weight) => Weight::Packed(&**weight),
        })
    }

    /// The numbers of a short constant.
    pub(super) fn numbers(&self, operand: Operand) -> Option<Vec<f32>> {
        const LONGEST: usize = 16;
        let KnownValue::Tensor(tensor) = self.known(operand)? else { return None };
        let view = tensor.view();
        let mut numbers = vec![0.0; view.len().min(LONGEST + 1)];
        let count = numbers.len();
        to_f32(&view, 0..count, &mut numbers);
        (count <= LONGEST).then_some(numbers)
    }
}
