//! One user of a loaded asset. States are with the worker, and copied when somebody looks at them.

use std::cell::OnceCell;
use std::sync::Arc;

use serde_json::{Value, json};

use super::frame::{Received, Spec, name_of};
use super::process::Question;
use super::{CoreAiLoaded, PREDICTION_LIMIT};
use crate::{LoadedModel, Observer, RuntimeError, Session, inputs};
use anemeter_kernels::tensor::{Tensor, TensorView};
use anemeter_mil::{Feature, FeatureType, Interface};

pub(super) struct CoreAiSession {
    loaded: Arc<CoreAiLoaded>,
    id: u64,
    states: Vec<State>,
    outputs: Vec<Received>,
    /// Whether the outputs are of a prediction that succeeded.
    has_outputs: bool,
}

/// A state that functions share by its name.
struct State {
    name: String,
    /// A function that takes it.
    function: String,
    /// Its content since the last prediction, once somebody has looked.
    seen: OnceCell<Option<Received>>,
}

impl CoreAiSession {
    pub(super) fn new(loaded: Arc<CoreAiLoaded>) -> CoreAiSession {
        let mut states: Vec<State> = Vec::new();
        for interface in loaded.model().interfaces() {
            for Feature { name, .. } in &interface.states {
                if !states.iter().any(|state| state.name == *name) {
                    let (name, function) = (name.clone(), interface.function.clone());
                    states.push(State { name, function, seen: OnceCell::new() });
                }
            }
        }
        let id = loaded.new_session();
        CoreAiSession { loaded, id, states, outputs: Vec::new(), has_outputs: false }
    }

    fn ask(
        &self,
        doing: &str,
        header: &Value,
        tensors: &[(&str, TensorView<'_>)],
        received: &mut Vec<Received>,
    ) -> Result<Value, RuntimeError> {
        let question = Question { doing, header, tensors, limit: PREDICTION_LIMIT };
        self.loaded.worker().ask(&question, received)
    }

    fn fetch(&self, state: &State) -> Option<Received> {
        let header =
            json!({"do": "state", "session": self.id, "function": state.function, "name": state.name});
        let mut received = Vec::new();
        let doing = format!("read the state `{}`", state.name);
        match self.ask(&doing, &header, &[], &mut received) {
            Ok(_) => received.pop(),
            Err(error) => {
                log::warn!("{error}");
                None
            }
        }
    }

    fn forget_states(&mut self) {
        for state in &mut self.states {
            state.seen.take();
        }
    }
}

/// Checks inputs before Apple's code sees them, which ends its process rather than refuse some of them.
fn check(
    loaded: &CoreAiLoaded,
    interface: &Interface,
    given: &[(&str, TensorView<'_>)],
) -> Result<Vec<Spec>, RuntimeError> {
    let program = loaded.model().program.function(&interface.function);
    let mut problems = program.map_or_else(Vec::new, |program| inputs::check(program, interface, given));
    let mut specs = Vec::with_capacity(given.len());
    for (name, view) in given {
        match Spec::of(name, view) {
            Some(spec) => specs.push(spec),
            None => problems.push(format!("`{name}` is {}, which the worker does not take", view.dtype())),
        }
    }
    match problems.is_empty() {
        true => Ok(specs),
        false => Err(RuntimeError::Inputs { function: interface.function.clone(), problems }),
    }
}

/// Outputs that differ from what the asset declares are a defect of one of the two.
fn check_outputs(interface: &Interface, outputs: &[Received]) -> Result<(), RuntimeError> {
    for feature in &interface.outputs {
        let FeatureType::Array(declared) = &feature.ty else { continue };
        let given = outputs.iter().find(|output| output.name == feature.name).and_then(Received::view);
        let problem = match given {
            None => format!("no output `{}`", feature.name),
            Some(view) if view.dtype() != declared.dtype => {
                format!("`{}` as {}, and declares it as {}", feature.name, view.dtype(), declared.dtype)
            }
            Some(_) => continue,
        };
        return Err(RuntimeError::Output { function: interface.function.clone(), problem });
    }
    Ok(())
}

impl Session for CoreAiSession {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        self.has_outputs = false;
        let loaded = Arc::clone(&self.loaded);
        let interface = loaded.interface(function)?;
        let specs = check(&loaded, interface, inputs)?;
        loaded.prepare(&[function])?;
        self.forget_states();
        let header = json!({"do": "predict", "session": self.id, "function": function, "tensors": specs});
        let mut outputs = std::mem::take(&mut self.outputs);
        let asked = self.ask(&format!("run the function `{function}`"), &header, inputs, &mut outputs);
        self.outputs = outputs;
        asked?;
        check_outputs(interface, &self.outputs)?;
        loaded.remember(function, inputs, &self.outputs);
        self.has_outputs = true;
        Ok(())
    }

    /// The worker is asleep while nobody asks, and wakes as fast however long that was.
    fn output(&self, name: &str) -> Option<TensorView<'_>> {
        self.outputs.iter().filter(|_| self.has_outputs).find(|output| output.name == name)?.view()
    }

    fn state(&self, name: &str) -> Option<TensorView<'_>> {
        let state = self.states.iter().find(|state| state.name == name)?;
        state.seen.get_or_init(|| self.fetch(state)).as_ref()?.view()
    }

    fn set_state(&mut self, name: &str, value: &Tensor) -> Result<(), RuntimeError> {
        let wrong = |problem: String| RuntimeError::State { name: name.to_owned(), problem };
        let known = self.states.iter().find(|state| state.name == name);
        let known = known.ok_or_else(|| wrong("the model has no such state".to_owned()))?;
        let interface = self.loaded.interface(&known.function)?;
        let feature = interface.states.iter().find(|feature| feature.name == name);
        if let Some(Feature { ty: FeatureType::State(declared), .. }) = feature {
            let shape: Vec<u64> = value.shape().iter().map(|&size| size as u64).collect();
            if value.dtype() != declared.dtype || !(declared.shape.is_empty() || declared.shape == shape) {
                let given = format!("{} {:?}", value.dtype(), value.shape());
                return Err(wrong(format!(
                    "is {} {:?}, and {given} is given",
                    declared.dtype, declared.shape
                )));
            }
        }
        let spec = Spec::of(name, &value.view()).filter(|_| name_of(value.dtype()).is_some());
        let spec = spec.ok_or_else(|| wrong(format!("{} cannot be given", value.dtype())))?;
        let header = json!({"do": "set_state", "session": self.id, "tensors": [spec]});
        let doing = format!("set the state `{name}`");
        self.ask(&doing, &header, &[(name, value.view())], &mut Vec::new())?;
        self.forget_states();
        Ok(())
    }

    fn state_names(&self) -> Vec<String> {
        self.states.iter().map(|state| state.name.clone()).collect()
    }

    /// The module tells of operations by a profiler, which gives times and no values.
    fn observe(&mut self, _: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        None
    }
}

impl Drop for CoreAiSession {
    fn drop(&mut self) {
        let header = json!({"do": "end_session", "session": self.id});
        // A worker that has ended has no states to forget.
        let _ = self.ask("end a session", &header, &[], &mut Vec::new());
    }
}
