//! Core ML through the crate `coreml-rs`: a second binding, written by others, for what it can do.
//!
//! It takes packages with a single function, without states, with one shape per input and outputs of fp32. What both
//! bindings give alike is the package's doing; where they differ, a binding is at fault.

use std::sync::{Arc, Mutex, PoisonError};

use coreml_rs::{ComputePlatform, CoreMLModelOptions, CoreMLModelWithState};
use half::f16;
use ndarray::{ArrayD, IxDyn};

use super::{
    Availability, CoreMlRuntime, LoadOptions, LoadedModel, Loading, Observer, Runtime, RuntimeError, Session,
    inputs,
};
use anemeter_base::vocabulary::{ComputeUnits, RuntimeName};
use anemeter_kernels::tensor::{DType, Element, Tensor, TensorView};
use anemeter_mil::package::Package;
use anemeter_mil::{Feature, FeatureType, Flexibility, Interface, Model};

/// Core ML through `coreml-rs`.
#[derive(Debug, Clone, Copy)]
pub struct CoreMlRsRuntime;

impl Runtime for CoreMlRsRuntime {
    fn name(&self) -> RuntimeName {
        RuntimeName::CoreMlRs
    }

    fn availability(&self) -> Availability {
        CoreMlRuntime::new().availability()
    }

    fn runs_bundles(&self) -> bool {
        false
    }

    fn load(&self, package: &Package, options: &LoadOptions) -> Result<Arc<dyn LoadedModel>, RuntimeError> {
        let model = package.shared_model();
        let interface = only_interface(&model)?;
        let problems = problems(interface);
        if !problems.is_empty() {
            return Err(RuntimeError::Inputs { function: interface.function.clone(), problems });
        }
        let (path, compilation) = CoreMlRuntime::new().compile(package, options)?;
        let settings = CoreMLModelOptions {
            compute_platform: platform(options.units)?,
            ..CoreMLModelOptions::default()
        };
        let loaded = CoreMLModelWithState::new_compiled(&path, settings).load();
        let loaded = loaded.map_err(|e| RuntimeError::Environment(format!("coreml-rs cannot load: {e}")))?;
        let loading = Loading { compilation, ..Loading::default() };
        Ok(Arc::new(CoreMlRsLoaded { model, loaded: Mutex::new(loaded), loading }))
    }
}

fn only_interface(model: &Model) -> Result<&Interface, RuntimeError> {
    match model.interfaces() {
        [interface] => Ok(interface),
        several => Err(RuntimeError::Environment(format!(
            "coreml-rs runs packages with a single function; this one has {}",
            several.len()
        ))),
    }
}

/// What the binding cannot do.
fn problems(interface: &Interface) -> Vec<String> {
    let mut problems: Vec<String> = interface
        .states
        .iter()
        .map(|feature| format!("`{}` is a state, which coreml-rs does not have", feature.name))
        .collect();
    let fits = |feature: &Feature, types: &[DType]| {
        let FeatureType::Array(array) = &feature.ty else { return false };
        types.contains(&array.dtype) && array.flexibility == Flexibility::Fixed
    };
    for feature in interface.inputs.iter().filter(|f| !fits(f, &[DType::F32, DType::F16, DType::I32])) {
        problems.push(format!(
            "input `{}` is not fp32, fp16 or int32 of one shape, as coreml-rs wants it",
            feature.name
        ));
    }
    for feature in interface.outputs.iter().filter(|f| !fits(f, &[DType::F32])) {
        problems.push(format!("output `{}` is not fp32 of one shape, as coreml-rs wants it", feature.name));
    }
    problems
}

fn platform(units: ComputeUnits) -> Result<ComputePlatform, RuntimeError> {
    match units {
        ComputeUnits::Cpu => Ok(ComputePlatform::Cpu),
        ComputeUnits::CpuAne => Ok(ComputePlatform::CpuAndANE),
        ComputeUnits::CpuGpu => Ok(ComputePlatform::CpuAndGpu),
        ComputeUnits::All => Err(RuntimeError::Environment(
            "coreml-rs has no compute units `all`; choose cpu, cpu+gpu or cpu+ane".to_owned(),
        )),
    }
}

struct CoreMlRsLoaded {
    model: Arc<Model>,
    loaded: Mutex<CoreMLModelWithState>,
    loading: Loading,
}

impl LoadedModel for CoreMlRsLoaded {
    fn model(&self) -> &Model {
        &self.model
    }

    fn session(self: Arc<Self>) -> Box<dyn Session> {
        Box::new(CoreMlRsSession { loaded: self, outputs: Vec::new() })
    }

    fn loading(&self) -> Loading {
        self.loading.clone()
    }
}

struct CoreMlRsSession {
    loaded: Arc<CoreMlRsLoaded>,
    outputs: Vec<(String, Tensor)>,
}

fn failed(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Environment(format!("coreml-rs: {error}"))
}

fn array<T: Element>(view: &TensorView<'_>) -> Result<ArrayD<T>, RuntimeError> {
    let elements = view.slice::<T>().map_err(failed)?.to_vec();
    ArrayD::from_shape_vec(IxDyn(view.shape()), elements).map_err(failed)
}

impl Session for CoreMlRsSession {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        self.outputs.clear();
        let model = &self.loaded.model;
        let program = model.program.functions.iter().find(|f| f.name == function);
        let (Some(program), Some(interface)) = (program, model.interface(function)) else {
            let known = model.interfaces().iter().map(|i| i.function.clone()).collect();
            return Err(RuntimeError::NoFunction { name: function.to_owned(), known });
        };
        let problems = inputs::check(program, interface, inputs);
        if !problems.is_empty() {
            return Err(RuntimeError::Inputs { function: function.to_owned(), problems });
        }
        let mut loaded = self.loaded.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, view) in inputs {
            let bound = match view.dtype() {
                DType::F32 => loaded.add_input(name, array::<f32>(view)?),
                DType::F16 => loaded.add_input(name, array::<f16>(view)?),
                _ => loaded.add_input(name, array::<i32>(view)?),
            };
            bound.map_err(failed)?;
        }
        let mut given = loaded.predict().map_err(failed)?.outputs;
        for feature in &interface.outputs {
            let output = given.remove(&feature.name).ok_or_else(|| RuntimeError::Output {
                function: function.to_owned(),
                problem: format!("no output `{}`", feature.name),
            })?;
            let shape = output.shape().to_vec();
            let elements = output.extract_to_tensor::<f32>().into_raw_vec();
            self.outputs.push((feature.name.clone(), Tensor::from_slice(&shape, &elements).map_err(failed)?));
        }
        Ok(())
    }

    fn output(&self, name: &str) -> Option<TensorView<'_>> {
        self.outputs.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor.view())
    }

    fn state(&self, _: &str) -> Option<TensorView<'_>> {
        None
    }

    fn set_state(&mut self, name: &str, _: &Tensor) -> Result<(), RuntimeError> {
        Err(RuntimeError::State { name: name.to_owned(), problem: "coreml-rs has no states".to_owned() })
    }

    fn state_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn observe(&mut self, _: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        None
    }
}
