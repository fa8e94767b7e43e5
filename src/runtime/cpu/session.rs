//! A session: plans by shape, states, working memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::cost::is_brief;
use super::execute::Execution;
use super::memory::{GrowableTensor, Memory};
use super::plan::{Place, Plan};
use super::planner::plan;
use super::{CpuLoaded, fold_options, image};
use crate::{HeldState, Observer, RuntimeError, Session, check_inputs};
use anemeter_kernels::parallel;
use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, Tensor, TensorView, shape};
use anemeter_mil::op::KnownValue;
use anemeter_mil::propagate::{self, Finding};
use anemeter_mil::{DefaultValue, Feature, FeatureType, Function, Interface, TensorType, Type, ValueId};

/// Plans kept per session; the oldest goes first.
const MAX_PLANS: usize = 160;

pub(super) struct CpuSession {
    loaded: Arc<CpuLoaded>,
    plans: Vec<CachedPlan>,
    /// The plan of the last prediction.
    current: Option<usize>,
    /// The plan of the last prediction that was not brief.
    worked: Option<usize>,
    states: Vec<GrowableTensor>,
    state_names: Vec<String>,
    memory: Memory,
    observer: Option<Box<dyn Observer>>,
}

/// A plan and the inputs it was made for.
struct CachedPlan {
    function: String,
    given: Vec<(String, DType, Shape)>,
    state_slots: Vec<usize>,
    /// Whether this thread is enough for it.
    brief: bool,
    plan: Arc<Plan>,
}

impl CachedPlan {
    fn serves(&self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> bool {
        self.function == function
            && self.given.len() == inputs.len()
            && self.given.iter().zip(inputs).all(|((name, dtype, shape), (given, view))| {
                name == given && *dtype == view.dtype() && shape[..] == *view.shape()
            })
    }

    /// The threads that carry it out, if this one is not enough.
    fn threads<'a>(&self, loaded: &'a CpuLoaded) -> Option<&'a rayon::ThreadPool> {
        loaded.pool.as_ref().filter(|_| !self.brief)
    }
}

impl CpuSession {
    pub(super) fn new(loaded: Arc<CpuLoaded>) -> CpuSession {
        let mut states = BTreeMap::new();
        for function in &loaded.model.program.functions {
            for value in function.inputs.iter().map(|&id| function.value(id)) {
                if let Type::State(ty) = &value.ty {
                    states.entry(value.name.clone()).or_insert_with(|| zero_state(ty));
                }
            }
        }
        let (state_names, states) = states.into_iter().unzip();
        CpuSession {
            loaded,
            plans: Vec::new(),
            current: None,
            worked: None,
            states,
            state_names,
            memory: Memory::default(),
            observer: None,
        }
    }

    fn plan_for(&mut self, name: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<usize, RuntimeError> {
        let found = self.plans.iter().position(|p| p.serves(name, inputs));
        if found.is_none_or(|found| self.worked != Some(found) && !self.plans[found].brief) {
            self.memory.arena.release();
            self.loaded.release_buffers();
        }
        let plan = match found {
            Some(found) => found,
            None => self.new_plan(name, inputs)?,
        };
        if !self.plans[plan].brief {
            self.worked = Some(plan);
        }
        Ok(plan)
    }

    fn new_plan(&mut self, name: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<usize, RuntimeError> {
        let loaded = self.loaded.clone();
        let (function, base) = loaded.function(name)?;
        let interface = loaded
            .model
            .interface(name)
            .ok_or_else(|| RuntimeError::NoFunction { name: name.to_owned(), known: Vec::new() })?;
        let problems = check_inputs(function, interface, inputs);
        if !problems.is_empty() {
            return Err(RuntimeError::Inputs { function: name.to_owned(), problems });
        }
        let mut facts = base.clone();
        fill_defaults(function, interface, inputs, &mut facts)?;
        let types = input_types(function, inputs);
        let (facts, findings) =
            propagate::propagate_from(facts, function, &types, fold_options(loaded.numerics, false));
        if !findings.is_empty() {
            return Err(RuntimeError::Program(findings));
        }
        let plan =
            plan(function, facts, loaded.fuses).map_err(|finding| RuntimeError::Program(vec![finding]))?;
        if plan.arena_bytes > loaded.memory_limit {
            return Err(RuntimeError::Budget(Finding {
                function: name.to_owned(),
                operation: "all operations".to_owned(),
                message: format!(
                    "need {} MB at these shapes, the memory limit is {} MB",
                    plan.arena_bytes >> 20,
                    loaded.memory_limit >> 20
                ),
            }));
        }
        let state_slots = self.state_slots(function, &plan)?;
        let given = inputs.iter().map(|(n, v)| ((*n).to_owned(), v.dtype(), v.shape().into())).collect();
        if self.plans.len() == MAX_PLANS {
            self.plans.remove(0);
            self.worked = None;
        }
        let (function, brief) = (name.to_owned(), is_brief(&plan));
        self.plans.push(CachedPlan { function, given, state_slots, brief, plan: Arc::new(plan) });
        Ok(self.plans.len() - 1)
    }

    fn state_slots(&self, function: &Function, plan: &Plan) -> Result<Vec<usize>, RuntimeError> {
        let slot = |name: &String| {
            let slot = self.state_names.iter().position(|n| n == name);
            let slot = slot.expect("a session has the states of all functions");
            let declared = function.inputs.iter().map(|&id| function.value(id)).find(|v| v.name == *name);
            let state = &self.states[slot];
            match declared.map(|v| &v.ty) {
                Some(Type::State(ty))
                    if ty.dtype == state.dtype && ty.concrete().is_some_and(|shape| shape == state.shape) =>
                {
                    Ok(slot)
                }
                _ => Err(RuntimeError::State {
                    name: name.clone(),
                    problem: format!("functions declare it differently; `{}` does not fit", function.name),
                }),
            }
        };
        plan.states.iter().map(slot).collect()
    }

    /// A state that must have this type and shape.
    fn state_of_type(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[usize],
    ) -> Result<&mut GrowableTensor, RuntimeError> {
        let error = |problem: String| RuntimeError::State { name: name.to_owned(), problem };
        let slot = self.state_names.iter().position(|n| n == name);
        let state = &mut self.states[slot.ok_or_else(|| error("the model has no such state".to_owned()))?];
        if dtype != state.dtype || shape != &state.shape[..] {
            let (state_dtype, state_shape) = (state.dtype, &state.shape);
            return Err(error(format!("is {dtype} {shape:?}, expected {state_dtype} {state_shape:?}")));
        }
        Ok(state)
    }

    fn execute(&mut self, current: usize, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        let cached = &self.plans[current];
        let plan = cached.plan.clone();
        self.memory.reserve(plan.arena_bytes, plan.growable);
        let mut views: SmallVec<[TensorView<'_>; 16]> = SmallVec::new();
        for (name, value) in &plan.inputs {
            let given = inputs.iter().find(|(n, _)| n == name).map(|(_, view)| view);
            let shape = plan.values[*value].shape.as_ref();
            let (Some(given), Some(shape)) = (given, shape) else {
                let problems = vec![format!("`{name}` is missing")];
                return Err(RuntimeError::Inputs { function: cached.function.clone(), problems });
            };
            let view = TensorView::new(plan.values[*value].dtype, shape, given.bytes());
            views.push(view.map_err(|e| RuntimeError::Inputs {
                function: cached.function.clone(),
                problems: vec![format!("`{name}`: {e}")],
            })?);
        }
        let (function, _) = self.loaded.function(&cached.function)?;
        let execution = Execution {
            plan: &plan,
            function: &function.name,
            opset: function.opset,
            numerics: self.loaded.numerics,
            memory_limit: self.loaded.memory_limit,
            steps_left: self.loaded.step_limit,
            step_limit: self.loaded.step_limit,
            inputs: &views,
            states: &mut self.states,
            state_slots: &cached.state_slots,
            memory: &mut self.memory,
            observer: self.observer.as_deref_mut(),
        };
        on_threads(cached.threads(&self.loaded), || execution.run())
    }
}

/// Does the work on the threads of a pool, none of which sleeps meanwhile, or on this one.
fn on_threads<R: Send>(pool: Option<&rayon::ThreadPool>, work: impl FnOnce() -> R + Send) -> R {
    match pool {
        Some(pool) => pool.install(|| parallel::with_spinning_workers(work)),
        None => work(),
    }
}

fn zero_state(ty: &TensorType) -> GrowableTensor {
    let (shape, bytes) = state_size(ty).expect("a model with a state of unknown size is not loaded");
    let mut state = GrowableTensor { buffer: AlignedBuf::zeroed(bytes), ..GrowableTensor::default() };
    state.set_type(ty.dtype, &shape, false);
    state
}

/// Shape and bytes of a state, if its shape is fixed and they can be counted.
pub(super) fn state_size(ty: &TensorType) -> Option<(Shape, usize)> {
    let shape = ty.concrete()?;
    let bytes = ty.dtype.byte_len(shape::element_count(&shape)?)?;
    Some((shape, bytes))
}

/// Input types with the shapes that were given; where the program takes a scalar, Core ML takes `[1]`.
fn input_types(function: &Function, inputs: &[(&str, TensorView<'_>)]) -> Vec<(ValueId, Type)> {
    let given = |name: &str| inputs.iter().find(|(n, _)| *n == name).map(|(_, view)| view);
    function
        .inputs
        .iter()
        .filter_map(|&id| {
            let value = function.value(id);
            let (view, declared) = (given(&value.name)?, value.ty.tensor()?);
            let is_scalar = declared.shape.is_empty() && view.len() == 1;
            let shape: &[usize] = if is_scalar { &[] } else { view.shape() };
            Some((id, TensorType::fixed(declared.dtype, shape).into()))
        })
        .collect()
}

/// Optional inputs that are left out take their default everywhere.
fn fill_defaults(
    function: &Function,
    interface: &Interface,
    inputs: &[(&str, TensorView<'_>)],
    facts: &mut propagate::Facts,
) -> Result<(), RuntimeError> {
    let is_left_out = |f: &&Feature| f.optional && !inputs.iter().any(|(name, _)| *name == f.name);
    for feature in interface.inputs.iter().filter(is_left_out) {
        let FeatureType::Array(array) = &feature.ty else { continue };
        let fill = match array.default {
            Some(DefaultValue::Int(value)) => value as f32,
            Some(DefaultValue::Float(value)) => value,
            Some(DefaultValue::Double(value)) => value as f32,
            None => 0.0,
        };
        let shape: Shape = array.shape.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
        let elements = shape::element_count(&shape).unwrap_or(usize::MAX);
        let tensor = (elements < 1 << 28)
            .then(|| anemeter_kernels::convert::from_f32(array.dtype, &shape, &vec![fill; elements]).ok())
            .flatten();
        let Some(tensor) = tensor else {
            let problems = vec![format!("`{}` is missing and its default cannot be made", feature.name)];
            return Err(RuntimeError::Inputs { function: function.name.clone(), problems });
        };
        if let Some(&id) = function.inputs.iter().find(|&&id| function.value(id).name == feature.name) {
            facts.types[id.index()] = TensorType::fixed(array.dtype, &shape).into();
            facts.known[id.index()] = Some(KnownValue::Tensor(tensor));
        }
    }
    Ok(())
}

impl Session for CpuSession {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        self.current = None;
        let loaded = self.loaded.clone();
        let interface = loaded.model.interface(function);
        let images = interface.map(|i| image::convert(i, inputs)).transpose()?.unwrap_or_default();
        let converted: SmallVec<[(&str, TensorView<'_>); 16]> = inputs
            .iter()
            .map(|&(name, view)| {
                let image = images.iter().find(|(n, _)| n == name);
                (name, image.map_or(view, |(_, tensor): &(String, Tensor)| tensor.view()))
            })
            .collect();
        let plan = self.plan_for(function, &converted)?;
        self.execute(plan, &converted)?;
        self.current = Some(plan);
        Ok(())
    }

    /// The other threads stay awake: waking them would be part of the next prediction, and make that slower too.
    fn wait(&mut self, is_over: &(dyn Fn() -> bool + Sync)) {
        let pool = self.current.and_then(|plan| self.plans[plan].threads(&self.loaded));
        on_threads(pool, || {
            while !is_over() {
                std::hint::spin_loop();
            }
        });
    }

    fn output(&self, name: &str) -> Option<TensorView<'_>> {
        let plan = &self.plans[self.current?].plan;
        let &(_, value) = plan.outputs.iter().find(|(n, _)| n == name)?;
        let planned = &plan.values[value];
        match planned.place {
            Place::Arena { offset, len } => TensorView::new(
                planned.dtype,
                planned.shape.as_ref()?,
                &self.memory.arena[offset..offset + len],
            )
            .ok(),
            Place::Growable(slot) => self.memory.grown[slot].view(),
            Place::Constant(constant) => match &plan.constants[constant].value {
                KnownValue::Tensor(tensor) => Some(tensor.view()),
                KnownValue::Packed(_) => None,
            },
            Place::Input(_) | Place::State(_) | Place::InputView { .. } | Place::StateView { .. } => {
                let &(_, slot) = plan.passed.iter().find(|(v, _)| *v == value)?;
                self.memory.grown[slot].view()
            }
            Place::Nowhere => None,
        }
    }

    fn state(&self, name: &str) -> Option<TensorView<'_>> {
        let slot = self.state_names.iter().position(|n| n == name)?;
        self.states[slot].view()
    }

    fn set_state(&mut self, name: &str, value: &Tensor) -> Result<(), RuntimeError> {
        let state = self.state_of_type(name, value.dtype(), value.shape())?;
        state.buffer.copy_from_slice(value.bytes());
        Ok(())
    }

    fn exchange_state(&mut self, name: &str, held: &mut HeldState) -> Result<(), RuntimeError> {
        let state = self.state_of_type(name, held.dtype, &held.shape)?;
        std::mem::swap(&mut state.buffer, &mut held.buffer);
        Ok(())
    }

    fn state_names(&self) -> Vec<String> {
        self.state_names.clone()
    }

    fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        std::mem::replace(&mut self.observer, observer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::LoadOptions;
    use anemeter_kernels::tensor::{DType, Tensor};
    use anemeter_mil::{Builder, Model, Opset, TensorType};

    #[test]
    fn a_wait_after_a_product_keeps_the_threads_of_the_pool_awake() {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F32, &[4, 4]));
        let y = main.op("matmul").arg("x", x).arg("y", x).push().unwrap();
        let model = Model::single(main.finish(&[y]));
        let options = LoadOptions { threads: Some(2), ..LoadOptions::default() };
        let mut session = crate::cpu().load_model(model, &options).unwrap().session();
        let x = Tensor::from_slice(&[4, 4], &[1.0f32; 16]).unwrap();
        session.predict("main", &[("x", x.view())]).unwrap();
        let in_pool = AtomicBool::new(false);
        session.wait(&|| {
            in_pool.store(
                rayon::current_num_threads() == 2 && rayon::current_thread_index().is_some(),
                Ordering::Relaxed,
            );
            true
        });
        assert!(in_pool.into_inner());
    }
}
