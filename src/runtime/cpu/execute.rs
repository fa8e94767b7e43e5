//! Executing a plan, step by step.

use std::time::Instant;

use smallvec::SmallVec;

use super::bindings::{Places, StepBindings, plain};
use super::cost;
use super::memory::{GrowableTensor, Memory, ReadableArena, split};
use super::plan::{Action, NestedBlock, Operand, Place, Plan, Step};
use crate::{Observer, OpExecution, RuntimeError};
use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, Tensor, TensorMut, TensorView, shape};
use anemeter_mil::op::{Call, Eval, Numerics, OpError, Output, OutputBuffer, Outputs, storage_type};
use anemeter_mil::ops::{classify, slice_update};
use anemeter_mil::propagate::Finding;
use anemeter_mil::{Opset, Type};

/// One prediction in progress.
pub(super) struct Execution<'a> {
    pub(super) plan: &'a Plan,
    pub(super) function: &'a str,
    pub(super) opset: Opset,
    pub(super) numerics: Numerics,
    pub(super) memory_limit: usize,
    /// Operations that may still be carried out, and how many could be at first.
    pub(super) steps_left: u64,
    pub(super) step_limit: u64,
    pub(super) inputs: &'a [TensorView<'a>],
    pub(super) states: &'a mut [GrowableTensor],
    /// Index into `states` of each state of the plan.
    pub(super) state_slots: &'a [usize],
    pub(super) memory: &'a mut Memory,
    pub(super) observer: Option<&'a mut (dyn Observer + 'static)>,
}

impl Execution<'_> {
    /// Runs the whole plan.
    pub(super) fn run(mut self) -> Result<(), RuntimeError> {
        let plan = self.plan;
        self.steps(&plan.steps)?;
        for &(value, slot) in &plan.passed {
            self.store(slot, value).map_err(|e| self.failed("output", &e))?;
        }
        Ok(())
    }

    fn failed(&self, place: impl Into<String>, error: &OpError) -> RuntimeError {
        let function = self.function.to_owned();
        RuntimeError::Failed(Finding { function, operation: place.into(), message: error.to_string() })
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), RuntimeError> {
        for step in steps {
            self.steps_left = self.steps_left.checked_sub(1).ok_or_else(|| self.too_many_steps(step))?;
            let started = self.observer.is_some().then(Instant::now);
            match &step.action {
                Action::Kernel => self.kernel(step).map_err(|e| self.step_failed(step, &e))?,
                Action::ReadState { state } => {
                    self.read_state(step, *state).map_err(|e| self.step_failed(step, &e))?;
                }
                Action::WriteState { state } => {
                    self.write_state(step, *state).map_err(|e| self.step_failed(step, &e))?;
                }
                Action::UpdateState { state } => {
                    self.update_state(step, *state).map_err(|e| self.step_failed(step, &e))?;
                }
                Action::Classify { classes } => {
                    self.classify(step, classes).map_err(|e| self.step_failed(step, &e))?;
                }
                Action::Nothing => {}
                Action::Cond { branches } => self.cond(step, branches)?,
                Action::While { condition, body } => self.repeat(step, condition, body)?,
            }
            if let Some(started) = started {
                self.observe(step, started);
            }
        }
        Ok(())
    }

    fn too_many_steps(&self, step: &Step) -> RuntimeError {
        RuntimeError::Budget(Finding {
            function: self.function.to_owned(),
            operation: format!("`{}` = {}", step.name, step.def.name),
            message: format!(
                "the prediction did not end within {} operations, the step limit",
                self.step_limit
            ),
        })
    }

    /// What a value may grow to beside the others.
    fn room(&self) -> usize {
        let grown: usize = self.memory.grown.iter().map(|grown| grown.buffer.len()).sum();
        self.memory_limit.saturating_sub(self.memory.arena.len()).saturating_sub(grown)
    }

    fn step_failed(&self, step: &Step, error: &OpError) -> RuntimeError {
        self.failed(format!("`{}` = {}", step.name, step.def.name), error)
    }

    fn observe(&mut self, step: &Step, started: Instant) {
        let Some(observer) = self.observer.take() else { return };
        let elapsed = started.elapsed();
        let views: Vec<TensorView<'_>> = step.outputs.iter().filter_map(|&v| self.view(v).ok()).collect();
        let size = |value| self.view(value).map_or(0, |view| view.bytes().len());
        let (bytes, flops) = cost::of(step, self.plan, size);
        let (kind, name) = (step.def.name, &step.name);
        observer.executed(&OpExecution { kind, name, started, elapsed, outputs: &views, bytes, flops });
        self.observer = Some(observer);
    }

    fn view(&self, value: usize) -> Result<TensorView<'_>, OpError> {
        self.places().view(value, |range| self.memory.arena.get(range), &self.memory.grown)
    }

    fn operand(&self, operand: Operand) -> Result<TensorView<'_>, OpError> {
        match operand {
            Operand::Constant(constant) => plain(&self.plan.constants[constant].value).map(Tensor::view),
            Operand::Value(value) => self.view(value),
        }
    }

    fn places(&self) -> Places<'_> {
        Places { plan: self.plan, inputs: self.inputs, states: self.states, slots: self.state_slots }
    }

    /// Copies a value into a buffer of its own.
    fn store(&mut self, slot: usize, value: usize) -> Result<(), OpError> {
        let mut grown = std::mem::take(&mut self.memory.grown[slot]);
        let is_list = self.is_list(value);
        let result = self.view(value).map(|view| grown.copy_from(&view, is_list));
        self.memory.grown[slot] = grown;
        result
    }

    fn is_list(&self, value: usize) -> bool {
        matches!(self.plan.values[value].ty, Type::List(..))
    }

    fn kernel(&mut self, step: &Step) -> Result<(), OpError> {
        let Eval::Kernel(kernel) = step.def.eval else { return Err(OpError::new("has no kernel")) };
        let shapes = if step.dynamic { self.shapes_now(step)? } else { self.planned_shapes(step) };
        let mut taken: SmallVec<[(usize, GrowableTensor); 4]> = SmallVec::new();
        let mut ranges: SmallVec<[std::ops::Range<usize>; 4]> = SmallVec::new();
        for &value in &step.outputs {
            match self.plan.values[value].place {
                Place::Arena { offset, len } => ranges.push(offset..offset + len),
                Place::Growable(slot) => taken.push((slot, std::mem::take(&mut self.memory.grown[slot]))),
                _ => return Err(OpError::new("an output has no place")),
            }
        }
        let room = self.room();
        let result = self.call(step, kernel, (&shapes[..], room), &mut ranges, &mut taken);
        for (slot, grown) in taken {
            self.memory.grown[slot] = grown;
        }
        result
    }

    fn call(
        &mut self,
        step: &Step,
        kernel: fn(&Call<'_>, &mut Outputs<'_, '_>) -> Result<(), OpError>,
        (shapes, room): (&[Option<Shape>], usize),
        ranges: &mut [std::ops::Range<usize>],
        taken: &mut [(usize, GrowableTensor)],
    ) -> Result<(), OpError> {
        let values = &self.plan.values;
        ranges.sort_by_key(|range| range.start);
        let (mut writable, readable) = split(&mut self.memory.arena, ranges);
        let mut buffers: SmallVec<[&mut AlignedBuf; 4]> =
            taken.iter_mut().map(|(_, grown)| &mut grown.buffer).collect();
        let mut slots: SmallVec<[Output<'_>; 4]> = SmallVec::new();
        for (&value, shape) in step.outputs.iter().zip(shapes) {
            let buffer = match values[value].place {
                Place::Arena { offset, .. } => {
                    let at = ranges.iter().position(|range| range.start == offset);
                    let at = at.expect("`kernel` has taken the range of every output in the arena");
                    OutputBuffer::Placed(std::mem::take(&mut writable[at]))
                }
                _ => OutputBuffer::Growable { buffer: buffers.remove(0), limit: room },
            };
            slots.push(Output { dtype: values[value].dtype, shape: shape.clone(), buffer });
        }
        let places =
            Places { plan: self.plan, inputs: self.inputs, states: self.states, slots: self.state_slots };
        let bindings = StepBindings { step, places, readable: &readable, grown: &self.memory.grown };
        let call =
            Call::new(step.def, self.opset, step.outputs.len(), &bindings).with_numerics(self.numerics);
        kernel(&call, &mut Outputs::new(&mut slots, &mut self.memory.scratch))?;
        let results: SmallVec<[Option<Shape>; 4]> = slots.into_iter().map(|slot| slot.shape).collect();
        drop(buffers);
        let mut grown = taken.iter_mut();
        for (&value, shape) in step.outputs.iter().zip(results) {
            if let Place::Growable(_) = values[value].place
                && let Some((_, grown)) = grown.next()
            {
                let shape = shape.ok_or_else(|| OpError::new("an output was left without a shape"))?;
                grown.set_type(values[value].dtype, &shape, matches!(values[value].ty, Type::List(..)));
            }
        }
        Ok(())
    }

    fn planned_shapes(&self, step: &Step) -> SmallVec<[Option<Shape>; 4]> {
        step.outputs.iter().map(|&value| self.plan.values[value].shape.clone()).collect()
    }

    /// Output shapes from the values at hand.
    fn shapes_now(&self, step: &Step) -> Result<SmallVec<[Option<Shape>; 4]>, OpError> {
        let whole = ReadableArena::whole(&self.memory.arena);
        let bindings =
            StepBindings { step, places: self.places(), readable: &whole, grown: &self.memory.grown };
        let call =
            Call::new(step.def, self.opset, step.outputs.len(), &bindings).with_numerics(self.numerics);
        let types = (step.def.infer)(&call)?;
        let room = self.room();
        types
            .iter()
            .map(|ty| {
                let ty = storage_type(ty)?;
                let Some(concrete) = ty.concrete() else { return Ok(None) };
                let bytes = shape::element_count(&concrete).and_then(|n| ty.dtype.byte_len(n));
                match bytes {
                    Some(bytes) if bytes <= room => Ok(Some(concrete)),
                    _ => Err(OpError::new(format!(
                        "an output of shape {concrete:?} does not fit into the memory limit"
                    ))),
                }
            })
            .collect()
    }

    fn read_state(&mut self, step: &Step, state: usize) -> Result<(), OpError> {
        let &[value] = &step.outputs[..] else { return Err(OpError::new("a read gives one value")) };
        let view =
            self.states[self.state_slots[state]].view().ok_or_else(|| OpError::new("the state is empty"))?;
        match self.plan.values[value].place {
            Place::Arena { offset, len } if len == view.bytes().len() => {
                self.memory.arena[offset..offset + len].copy_from_slice(view.bytes());
            }
            Place::Growable(slot) => self.memory.grown[slot].copy_from(&view, false),
            _ => return Err(OpError::new("the state has another size than the value it is read into")),
        }
        Ok(())
    }

    fn write_state(&mut self, step: &Step, state: usize) -> Result<(), OpError> {
        let param = step.def.params.iter().position(|p| p.name == "data" || p.name == "value");
        let Some(&operand) = param.and_then(|p| step.arguments[p].first()) else {
            return Err(OpError::new("nothing to write"));
        };
        let slot = self.state_slots[state];
        let mut target = std::mem::take(&mut self.states[slot]);
        let result = self.operand(operand).and_then(|view| {
            if view.dtype() != target.dtype || view.shape() != &target.shape[..] {
                let message = format!("{} {:?} does not fit the state", view.dtype(), view.shape());
                return Err(OpError::new(message));
            }
            target.buffer.copy_from_slice(view.bytes());
            Ok(())
        });
        self.states[slot] = target;
        result?;
        if step.outputs.is_empty() { Ok(()) } else { self.read_state(step, state) }
    }

    fn update_state(&mut self, step: &Step, state: usize) -> Result<(), OpError> {
        let slot = self.state_slots[state];
        let mut target = std::mem::take(&mut self.states[slot]);
        let whole = ReadableArena::whole(&self.memory.arena);
        let bindings =
            StepBindings { step, places: self.places(), readable: &whole, grown: &self.memory.grown };
        let call = Call::new(step.def, self.opset, 1, &bindings);
        let result = slice_update::in_place(&call, &target.shape, &mut target.buffer);
        self.states[slot] = target;
        result
    }

    fn classify(&mut self, step: &Step, classes: &[Tensor]) -> Result<(), OpError> {
        let probabilities = step.argument("probabilities").and_then(|operands| operands.first());
        let (Some(&probabilities), &[label, values]) = (probabilities, &step.outputs[..]) else {
            return Err(OpError::new("takes probabilities and gives a label and a dictionary"));
        };
        let (Place::Growable(label), Place::Growable(values)) =
            (self.plan.values[label].place, self.plan.values[values].place)
        else {
            return Err(OpError::new("an output has no place"));
        };
        let mut dictionary = std::mem::take(&mut self.memory.grown[values]);
        let best = self.operand(probabilities).and_then(|view| {
            let view = view.slice::<f32>()?;
            dictionary.buffer.resize(size_of_val(view) * 2);
            dictionary.set_type(DType::F64, &[view.len()], false);
            let shape = [view.len()];
            let doubles = TensorMut::new(DType::F64, &shape, &mut dictionary.buffer)?;
            doubles
                .slice::<f64>()?
                .iter_mut()
                .zip(view)
                .for_each(|(double, &single)| *double = single.into());
            let best = classify::most_likely(view).and_then(|best| classes.get(best));
            best.filter(|_| view.len() == classes.len()).ok_or_else(|| {
                OpError::new(format!("{} probabilities for {} classes", view.len(), classes.len()))
            })
        });
        self.memory.grown[values] = dictionary;
        self.memory.grown[label].copy_from(&best?.view(), false);
        Ok(())
    }

    fn flag(&self, value: usize) -> Result<bool, OpError> {
        match self.view(value)?.bools()? {
            [flag] => Ok(*flag != 0),
            more => Err(OpError::new(format!("a condition is one boolean, not {}", more.len()))),
        }
    }

    fn cond(&mut self, step: &Step, branches: &[NestedBlock; 2]) -> Result<(), RuntimeError> {
        let fail = |this: &Self, e: OpError| this.step_failed(step, &e);
        let condition = match step.arguments.iter().flatten().next() {
            Some(Operand::Value(value)) => self.flag(*value),
            Some(Operand::Constant(constant)) => plain(&self.plan.constants[*constant].value)
                .and_then(|t| Ok(t.view().bools()?.first() == Some(&1))),
            None => Err(OpError::new("no condition")),
        };
        let condition = condition.map_err(|e| fail(self, e))?;
        let branch = &branches[usize::from(!condition)];
        self.steps(&branch.steps)?;
        for (&from, &to) in branch.outputs.iter().zip(&step.outputs) {
            self.assign(to, from).map_err(|e| fail(self, e))?;
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        step: &Step,
        condition: &NestedBlock,
        body: &NestedBlock,
    ) -> Result<(), RuntimeError> {
        let fail = |this: &Self, e: OpError| this.step_failed(step, &e);
        for (i, operand) in step.arguments.iter().flatten().enumerate() {
            for block in [condition, body] {
                let target = block.inputs.get(i).copied().ok_or_else(|| OpError::new("too few block inputs"));
                target.and_then(|to| self.assign_operand(to, *operand)).map_err(|e| fail(self, e))?;
            }
        }
        loop {
            // A loop of no operations counts as one.
            self.steps_left = self.steps_left.checked_sub(1).ok_or_else(|| self.too_many_steps(step))?;
            self.steps(&condition.steps)?;
            let goes_on =
                condition.outputs.first().ok_or_else(|| OpError::new("the condition yields nothing"));
            if !goes_on.and_then(|&value| self.flag(value)).map_err(|e| fail(self, e))? {
                for (&to, &from) in step.outputs.iter().zip(&body.inputs) {
                    self.assign(to, from).map_err(|e| fail(self, e))?;
                }
                return Ok(());
            }
            self.steps(&body.steps)?;
            self.carry(condition, body).map_err(|e| fail(self, e))?;
        }
    }

    /// Carries what the body yields into the next round; all at once, since outputs may be inputs permuted.
    fn carry(&mut self, condition: &NestedBlock, body: &NestedBlock) -> Result<(), OpError> {
        let mut next = Vec::with_capacity(body.outputs.len());
        for &value in &body.outputs {
            let mut grown = GrowableTensor::default();
            grown.copy_from(&self.view(value)?, self.is_list(value));
            next.push(grown);
        }
        for (i, grown) in next.into_iter().enumerate() {
            let is_list = matches!(grown.ty, Type::List(..));
            if let (Some(view), Place::Growable(slot)) =
                (grown.view(), self.plan.values[condition.inputs[i]].place)
            {
                self.memory.grown[slot].copy_from(&view, is_list);
            }
            if let Place::Growable(slot) = self.plan.values[body.inputs[i]].place {
                self.memory.grown[slot] = grown;
            }
        }
        Ok(())
    }

    fn assign_operand(&mut self, to: usize, operand: Operand) -> Result<(), OpError> {
        match operand {
            Operand::Value(from) => self.assign(to, from),
            Operand::Constant(constant) => {
                let view = plain(&self.plan.constants[constant].value)?.view();
                if let Place::Growable(slot) = self.plan.values[to].place {
                    self.memory.grown[slot].copy_from(&view, false);
                }
                Ok(())
            }
        }
    }

    fn assign(&mut self, to: usize, from: usize) -> Result<(), OpError> {
        match self.plan.values[to].place {
            Place::Growable(slot) => self.store(slot, from),
            Place::Nowhere => Ok(()),
            _ => Err(OpError::new("a result of control flow has no buffer of its own")),
        }
    }
}
