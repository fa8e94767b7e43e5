//! Making a plan: constants folded, steps in order, views and states used where they are, every value given a
//! place.

use smallvec::SmallVec;

use super::compact::compact;
use super::lifetimes::Lifetimes;
use super::plan::{Action, Constant, NestedBlock, Operand, Place, Plan, PlannedValue, Step};
use super::views::{Aliases, PlanBindings, first_byte};
use super::{arena, fuse, states};
use anemeter_kernels::tensor::{DType, shape};
use anemeter_mil::arguments::{Arguments, Source};
use anemeter_mil::op::{Eval, KnownValue, OpDef, OpError, decode_all, storage_type};
use anemeter_mil::ops::classify;
use anemeter_mil::propagate::{Facts, Finding, place};
use anemeter_mil::{Block, Function, Operation, TensorType, Type, ValueId, ops};

/// Plans a function from the facts of its values.
pub(super) fn plan(function: &Function, facts: Facts, fuses: bool) -> Result<Plan, Finding> {
    let mut planner = Planner::new(function, facts);
    let mut steps = planner.block(&function.body, true)?;
    if fuses {
        let Planner { aliases, facts, constants, .. } = &planner;
        fuse::fuse(&mut steps, &planner.outputs(), fuse::Values { aliases, facts, constants });
    }
    // Most operations of a program are constants, views or parts of fused steps.
    steps.shrink_to_fit();
    Ok(planner.finish(steps))
}

struct Planner<'f> {
    function: &'f Function,
    facts: Facts,
    places: Vec<Place>,
    constants: Vec<Constant>,
    decoded: Vec<Option<usize>>,
    states: Vec<String>,
    inputs: Vec<(String, usize)>,
    growable: usize,
    /// Values of the top block whose size is known, to be placed in the arena.
    sized: Vec<usize>,
    /// Whether a value is one of these.
    is_sized: Vec<bool>,
    aliases: Aliases,
}

impl<'f> Planner<'f> {
    fn new(function: &'f Function, facts: Facts) -> Planner<'f> {
        let count = function.values.len();
        let mut planner = Planner {
            function,
            facts,
            places: vec![Place::Nowhere; count],
            constants: Vec::new(),
            decoded: vec![None; count],
            states: Vec::new(),
            inputs: Vec::new(),
            growable: 0,
            sized: Vec::new(),
            is_sized: vec![false; count],
            aliases: Aliases::new(count),
        };
        for &id in &function.inputs {
            let value = function.value(id);
            planner.places[id.index()] = if matches!(value.ty, Type::State(_)) {
                planner.states.push(value.name.clone());
                Place::State(planner.states.len() - 1)
            } else if planner.facts.known[id.index()].is_some() {
                Place::Nowhere
            } else {
                planner.inputs.push((value.name.clone(), id.index()));
                Place::Input(planner.inputs.len() - 1)
            };
        }
        planner
    }

    fn block(&mut self, block: &Block, top: bool) -> Result<Vec<Step>, Finding> {
        let mut steps = Vec::with_capacity(block.operations.len());
        for op in &block.operations {
            let step = self.operation(op, top).map_err(|error| Finding {
                function: self.function.name.clone(),
                operation: place(self.function, op),
                message: error.to_string(),
            })?;
            steps.extend(step);
        }
        for &id in &block.outputs {
            self.plain_place(id).map_err(|error| Finding {
                function: self.function.name.clone(),
                operation: format!("`{}`", self.function.value(id).name),
                message: error.to_string(),
            })?;
        }
        Ok(steps)
    }

    fn operation(&mut self, op: &Operation, top: bool) -> Result<Option<Step>, OpError> {
        let is_known = |id: &ValueId| self.facts.known[id.index()].is_some();
        if op.kind == "const" || !op.outputs.is_empty() && op.outputs.iter().all(is_known) {
            return Ok(None);
        }
        let def = ops::find(&op.kind, self.function.opset)
            .ok_or_else(|| OpError::new(format!("unknown operation {}", op.kind)))?;
        let (arguments, problems) = Arguments::resolve(op, def);
        if !problems.is_empty() {
            return Err(OpError::new(problems.join("; ")));
        }
        let operands = self.operands(def, &arguments)?;
        if top && self.is_view(op, def, &operands) {
            return Ok(None);
        }
        let action = self.action(op, def, &operands)?;
        let mut dynamic = !top || !matches!(action, Action::Kernel);
        for &id in &op.outputs {
            dynamic |=
                !self.place_output(id, top && matches!(action, Action::Kernel | Action::ReadState { .. }))?;
        }
        let name =
            op.outputs.first().map_or(op.kind.as_str(), |&id| &self.function.value(id).name).to_owned();
        let outputs = op.outputs.iter().map(|id| id.index()).collect();
        Ok(Some(Step { def, name, arguments: operands, outputs, action, dynamic, fused_flops: None }))
    }

    /// Makes the result of an operation a part of its operand, if that is what it is.
    fn is_view(&mut self, op: &Operation, def: &'static OpDef, operands: &[SmallVec<[Operand; 1]>]) -> bool {
        let (Some([Operand::Value(x)]), [id]) = (operands.first().map(|x| &x[..]), &op.outputs[..]) else {
            return false;
        };
        let root = self.aliases.root(*x);
        let placed = matches!(self.places[root], Place::Input(_)) || self.is_sized[root];
        let sized =
            |value: usize| storage_type(&self.facts.types[value]).is_ok_and(|ty| ty.concrete().is_some());
        if !placed || !sized(*x) || !sized(id.index()) {
            return false;
        }
        let Facts { types, known } = &self.facts;
        let bindings = PlanBindings { operands, constants: &self.constants, types, known };
        let Some(offset) = first_byte(def, self.function.opset, &bindings) else { return false };
        self.aliases.add(id.index(), *x, offset);
        true
    }

    /// Gives an output a place; true if its size is known.
    fn place_output(&mut self, id: ValueId, may_be_sized: bool) -> Result<bool, OpError> {
        let ty = storage_type(&self.facts.types[id.index()])?;
        let sized = may_be_sized && ty.concrete().is_some();
        if sized && byte_len(&ty).is_none() {
            return Err(OpError::new(format!("a {ty} is too large to address")));
        }
        if sized {
            self.sized.push(id.index());
            self.is_sized[id.index()] = true;
        } else {
            self.places[id.index()] = self.add_growable();
        }
        Ok(sized)
    }

    fn operands(
        &mut self,
        def: &OpDef,
        arguments: &Arguments<'_>,
    ) -> Result<Vec<SmallVec<[Operand; 1]>>, OpError> {
        let mut operands = Vec::with_capacity(def.params.len());
        for (param, sources) in arguments.iter() {
            let mut list = SmallVec::with_capacity(sources.len());
            for source in sources {
                list.push(match source {
                    Source::Literal(literal) => match literal.tensor() {
                        Some(tensor) => Operand::Constant(self.add_constant(KnownValue::Tensor(tensor))),
                        // The action has the classes.
                        None if def.name == "classify" => continue,
                        None => {
                            let name = def.params[param].name;
                            return Err(OpError::new(format!("`{name}` is not a tensor")));
                        }
                    },
                    Source::Value(id) => self.value_operand(*id, def.params[param].packed)?,
                });
            }
            operands.push(list);
        }
        Ok(operands)
    }

    /// A value as an operand: a compressed weight is decoded where the operation needs it plain.
    fn value_operand(&mut self, id: ValueId, takes_packed: bool) -> Result<Operand, OpError> {
        let index = id.index();
        match &self.facts.known[index] {
            Some(KnownValue::Packed(weight)) if !takes_packed => {
                if let Some(constant) = self.decoded[index] {
                    return Ok(Operand::Constant(constant));
                }
                let plain = decode_all(&**weight)?;
                let constant = self.add_constant(KnownValue::Tensor(plain));
                self.decoded[index] = Some(constant);
                Ok(Operand::Constant(constant))
            }
            _ => {
                self.constant_place(id);
                Ok(Operand::Value(index))
            }
        }
    }

    /// Puts a known value among the constants the first time it is used.
    fn constant_place(&mut self, id: ValueId) {
        let index = id.index();
        if let (Place::Nowhere, Some(known)) = (self.places[index], &self.facts.known[index]) {
            let constant = self.add_constant(known.clone());
            self.places[index] = Place::Constant(constant);
        }
    }

    /// The same for a value that leaves its block, and so has to be plain.
    fn plain_place(&mut self, id: ValueId) -> Result<(), OpError> {
        match self.value_operand(id, false)? {
            Operand::Constant(constant) => self.places[id.index()] = Place::Constant(constant),
            Operand::Value(_) => {}
        }
        Ok(())
    }

    fn add_constant(&mut self, value: KnownValue) -> usize {
        let ty = match &value {
            KnownValue::Tensor(tensor) => TensorType::fixed(tensor.dtype(), tensor.shape()),
            KnownValue::Packed(weight) => TensorType::fixed(weight.dtype(), weight.shape()),
        };
        self.constants.push(Constant { value, ty: ty.into() });
        self.constants.len() - 1
    }

    fn add_growable(&mut self) -> Place {
        self.growable += 1;
        Place::Growable(self.growable - 1)
    }

    fn action(
        &mut self,
        op: &Operation,
        def: &OpDef,
        operands: &[SmallVec<[Operand; 1]>],
    ) -> Result<Action, OpError> {
        let state_of = |parameter: &str| {
            let param = def.params.iter().position(|p| p.name == parameter);
            match param.and_then(|p| operands[p].first()) {
                Some(Operand::Value(index)) => match self.places[*index] {
                    Place::State(state) => Ok(state),
                    _ => Err(OpError::new(format!("`{parameter}` is not a state"))),
                },
                _ => Err(OpError::new(format!("`{parameter}` is missing"))),
            }
        };
        match (op.kind.as_str(), &op.blocks[..]) {
            ("read_state", _) => Ok(Action::ReadState { state: state_of("input")? }),
            ("write_state", _) => Ok(Action::WriteState { state: state_of("input")? }),
            ("coreml_update_state", _) => Ok(Action::WriteState { state: state_of("state")? }),
            ("cond", [then, otherwise]) => {
                Ok(Action::Cond { branches: [self.nested(then)?, self.nested(otherwise)?] })
            }
            ("while_loop", [condition, body]) => {
                Ok(Action::While { condition: self.nested(condition)?, body: self.nested(body)? })
            }
            ("classify", _) => classify::classes(self.function, op)
                .map(|classes| Action::Classify { classes })
                .ok_or_else(|| OpError::new("`classes` is not a list of constants")),
            _ if matches!(def.eval, Eval::Kernel(_)) => Ok(Action::Kernel),
            (kind, _) => Err(OpError::new(format!("the CPU runtime cannot execute {kind} here"))),
        }
    }

    fn nested(&mut self, block: &Block) -> Result<NestedBlock, OpError> {
        for &id in &block.inputs {
            self.places[id.index()] = self.add_growable();
        }
        let steps = self.block(block, false).map_err(|finding| OpError::new(finding.to_string()))?;
        let indices = |ids: &[ValueId]| ids.iter().map(|id| id.index()).collect();
        Ok(NestedBlock { inputs: indices(&block.inputs), steps, outputs: indices(&block.outputs) })
    }

    fn outputs(&self) -> Vec<(String, usize)> {
        let ids = &self.function.body.outputs;
        ids.iter().map(|&id| (self.function.value(id).name.clone(), id.index())).collect()
    }

    fn finish(mut self, mut steps: Vec<Step>) -> Plan {
        let outputs = self.outputs();
        for (value, state) in states::use_in_place(&mut steps, &outputs, &self.aliases) {
            self.places[value] = Place::State(state);
        }
        let arena_bytes = self.place_sized(&steps, &outputs);
        self.place_views();
        let passed = self.pass_inputs(&outputs);
        let Planner { function: _, facts, places, constants, states, inputs, growable, .. } = self;
        let values = facts
            .types
            .into_iter()
            .zip(places)
            .map(|(ty, place)| {
                let storage = storage_type(&ty).ok();
                let dtype = storage.as_ref().map_or(DType::Bool, |ty| ty.dtype);
                let shape = storage.and_then(|ty| ty.concrete());
                PlannedValue { ty, dtype, shape, place }
            })
            .collect();
        compact(Plan { steps, values, constants, states, inputs, outputs, arena_bytes, growable, passed })
    }

    fn pass_inputs(&mut self, outputs: &[(String, usize)]) -> Vec<(usize, usize)> {
        let is_input = |value: &usize| {
            let place = self.places[*value];
            !matches!(place, Place::Arena { .. } | Place::Growable(_) | Place::Constant(_) | Place::Nowhere)
        };
        let passed: Vec<usize> = outputs.iter().map(|&(_, value)| value).filter(is_input).collect();
        let first = self.growable;
        self.growable += passed.len();
        passed.into_iter().zip(first..).collect()
    }

    /// Gives the parts of values that have a place theirs.
    fn place_views(&mut self) {
        for value in 0..self.places.len() {
            let Some(view) = self.aliases.view(value) else { continue };
            let len = self.byte_len(value);
            self.places[value] = match self.places[view.of] {
                Place::Arena { offset, .. } => Place::Arena { offset: offset + view.offset, len },
                Place::Input(input) => Place::InputView { input, offset: view.offset, len },
                Place::State(state) => Place::StateView { state, offset: view.offset, len },
                other => other,
            };
        }
    }

    fn place_sized(&mut self, steps: &[Step], outputs: &[(String, usize)]) -> usize {
        let mut computed = vec![false; self.places.len()];
        steps.iter().flat_map(|step| &step.outputs).for_each(|&value| computed[value] = true);
        self.sized.retain(|&value| computed[value]);
        let lifetimes = Lifetimes::of(steps, outputs, &self.aliases);
        let requests: Vec<arena::Request> = self
            .sized
            .iter()
            .map(|&value| arena::Request {
                bytes: self.byte_len(value),
                first: lifetimes.defined[value],
                last: lifetimes.used[value].max(lifetimes.defined[value]),
            })
            .collect();
        let (offsets, total) = arena::assign(&requests);
        for ((&value, offset), request) in self.sized.iter().zip(offsets).zip(&requests) {
            self.places[value] = Place::Arena { offset, len: request.bytes };
        }
        total
    }

    fn byte_len(&self, value: usize) -> usize {
        let ty = storage_type(&self.facts.types[value]).ok();
        ty.as_ref().and_then(byte_len).expect("a value has a size by the time it gets a place")
    }
}

/// Bytes of a value, if its shape is known and they can be counted.
fn byte_len(ty: &TensorType) -> Option<usize> {
    ty.dtype.byte_len(shape::element_count(&ty.concrete()?)?)
}
