//! The Core AI runtime: `.aimodel` assets, executed by Apple's Python module `coreai` in a worker process.
//!
//! The framework has a Swift interface only. The module drives it on macOS 27, and on Linux an interpreter that Apple
//! ships with the module: what is tested there is what runs here. Apple's code ends its process where it meets what it
//! does not handle, so it runs in a process of its own.

mod described;
mod frame;
mod interpreter;
mod process;
mod session;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Availability, FunctionLoad, LoadOptions, LoadedModel, Loading, Runtime, RuntimeError, Session};
use anemeter_base::engine::{CallOverhead, Engine, EngineKind};
use anemeter_base::vocabulary::{Choice, ComputeUnits, RuntimeName};
use anemeter_coreai::asset::Asset;
use anemeter_coreai::describe;
use anemeter_kernels::tensor::{DType, Tensor, TensorView};
use anemeter_mil::package::Package;
use anemeter_mil::{FeatureType, Flexibility, Interface, Model};
use described::Described;
use frame::{Received, Spec, type_of};
pub use interpreter::{
    Interpreter, InterpreterError, NamedBy, PINNED, PYTHON_VARIABLE, Versions, named_interpreter,
    use_interpreter,
};
use process::{Question, Worker};

/// The program of a worker.
const WORKER: &str = include_str!("worker.py");
/// The ending of an asset.
const ENDING: &str = "aimodel";

/// Time to load numpy and Apple's module, from a cold disk too.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Time for a prediction. The interpreter multiplies fp16 matrices at a fifteenth of a GFLOP/s.
const PREDICTION_LIMIT: Duration = Duration::from_secs(3600);
/// Places of an open dimension of a state; the worker has the same number.
const OPEN_PLACES: usize = 256;
/// Calls that are made to find what a call takes; an odd number.
const OVERHEAD_CALLS: usize = 9;

/// Whether a path is that of a Core AI asset, sound or not.
pub fn is_asset(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING) || Asset::is_at(path)
}

/// Core AI.
#[derive(Debug, Default)]
pub struct CoreAiRuntime {
    python: Option<PathBuf>,
}

impl CoreAiRuntime {
    /// Core AI with the interpreter that this process uses.
    pub const fn new() -> CoreAiRuntime {
        CoreAiRuntime { python: None }
    }

    /// Core AI with this interpreter.
    pub fn with_python(program: impl Into<PathBuf>) -> CoreAiRuntime {
        CoreAiRuntime { python: Some(program.into()) }
    }

    /// The interpreter that workers are started with.
    pub fn interpreter(&self) -> Interpreter {
        Interpreter::find(self.python.as_deref())
    }

    fn start(&self) -> Result<(Worker, Hello), RuntimeError> {
        let mut command = self.interpreter().command();
        command.args(["-c", WORKER]);
        greeted(command)
    }
}

/// Starts a worker and hears what it is.
fn greeted(command: Command) -> Result<(Worker, Hello), RuntimeError> {
    let mut worker = Worker::start(command)?;
    let header = json!({"do": "hello"});
    let question = Question {
        doing: "start Apple's module `coreai`",
        header: &header,
        tensors: &[],
        limit: START_LIMIT,
    };
    let hello = worker.ask(&question, &mut Vec::new())?;
    Ok((worker, hello))
}

/// What a worker says of itself.
#[derive(Debug, Clone, Deserialize)]
struct Hello {
    wheel: String,
    platform: String,
    system_framework: bool,
}

impl Hello {
    fn engine(&self) -> Engine {
        let kind =
            if self.system_framework { EngineKind::SystemFramework } else { EngineKind::CpuInterpreter };
        let version = format!("coreai-core {}", self.wheel);
        Engine { kind, version, platform: self.platform.clone(), overheads: Vec::new() }
    }
}

/// What loading an asset gave.
#[derive(Deserialize)]
struct Opened {
    elapsed_s: f64,
}

impl Runtime for CoreAiRuntime {
    fn name(&self) -> RuntimeName {
        RuntimeName::CoreAi
    }

    fn availability(&self) -> Availability {
        let interpreter = self.interpreter();
        let problem = match interpreter.ask() {
            Ok(versions) => versions.problem(&interpreter),
            Err(problem) => Some(format!("{problem}; it takes a Python with {PINNED}")),
        };
        problem.map_or(Availability::Ready, Availability::Unavailable)
    }

    fn about(&self) -> Option<String> {
        let interpreter = self.interpreter();
        let versions = interpreter.ask().ok()?;
        let (python, wheel) = (&versions.python, versions.wheel.as_ref()?);
        let engine = match versions.has_system_framework() {
            true => "the system's Core AI framework".to_owned(),
            false => {
                format!("Apple's CPU interpreter on {}, for checking and not for speed", versions.system)
            }
        };
        Some(format!("{engine}; coreai-core {wheel} in Python {python}, {interpreter}"))
    }

    fn open(&self, path: &Path) -> Result<Package, RuntimeError> {
        if !is_asset(path) {
            return Err(RuntimeError::OtherFormat {
                path: path.to_owned(),
                found: "no Core AI asset",
                runtime: RuntimeName::CoreAi,
                executes: "`.aimodel` assets",
            });
        }
        Ok(describe::open(path)?)
    }

    fn load(&self, package: &Package, options: &LoadOptions) -> Result<Arc<dyn LoadedModel>, RuntimeError> {
        let path = package.path();
        if !is_asset(path) {
            return Err(RuntimeError::OtherFormat {
                path: path.to_owned(),
                found: "a Core ML package",
                runtime: RuntimeName::CoreAi,
                executes: "`.aimodel` assets",
            });
        }
        let (worker, hello) = self.start()?;
        load_with(worker, &hello, package, options)
    }
}

/// Loads an asset in a worker that was started.
fn load_with(
    mut worker: Worker,
    hello: &Hello,
    package: &Package,
    options: &LoadOptions,
) -> Result<Arc<dyn LoadedModel>, RuntimeError> {
    let opened = open(&mut worker, package.path(), options)?;
    let engine = hello.engine();
    let mut remarks: Vec<String> = engine.caution().into_iter().collect();
    if !hello.system_framework && !matches!(options.units, ComputeUnits::All | ComputeUnits::Cpu) {
        remarks.push(format!(
            "asked for the compute units {}, and the interpreter has the CPU only",
            options.units
        ));
    }
    remarks.extend(open_states(package.model()).map(|name| {
        format!("the state `{name}` has an open dimension, which has {OPEN_PLACES} places unless the state is given")
    }));
    let loading = Loading {
        lowering: Some(seconds(opened.elapsed_s)),
        units: (!hello.system_framework).then_some(ComputeUnits::Cpu),
        engine: Some(engine),
        remarks,
        ..Loading::default()
    };
    Ok(Arc::new(CoreAiLoaded {
        model: package.shared_model(),
        worker: Mutex::new(worker),
        load_limit: options.load_limit,
        loading: Mutex::new(loading),
        calls: Mutex::default(),
        sessions: AtomicU64::new(0),
    }))
}

/// States whose shapes the asset leaves open, each once.
fn open_states(model: &Model) -> impl Iterator<Item = &str> {
    let states = model.interfaces().iter().flat_map(|interface| &interface.states);
    let open = states.filter(|state| {
        matches!(&state.ty, FeatureType::State(array) if matches!(array.flexibility, Flexibility::Ranges(_)))
    });
    let mut names: Vec<&str> = open.map(|state| state.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter()
}

fn open(worker: &mut Worker, path: &Path, options: &LoadOptions) -> Result<Opened, RuntimeError> {
    let doing = format!("load {}", path.display());
    let failed = |problem: String| RuntimeError::CoreAi { doing: doing.clone(), problem };
    let whole = std::fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
    let text = whole.to_str().ok_or_else(|| failed("its path is not UTF-8".to_owned()))?;
    let header = json!({"do": "load", "path": text, "units": options.units.name()});
    let question = Question { doing: &doing, header: &header, tensors: &[], limit: options.load_limit };
    worker.ask(&question, &mut Vec::new())
}

/// Has a function loaded, and holds what the worker says of it against the file.
fn load_function(
    worker: &mut Worker,
    interface: &Interface,
    limit: Duration,
) -> Result<Duration, RuntimeError> {
    let function = &interface.function;
    let header = json!({"do": "describe", "function": function});
    let doing = format!("load the function `{function}`");
    let question = Question { doing: &doing, header: &header, tensors: &[], limit };
    let described: Described = worker.ask(&question, &mut Vec::new())?;
    match described.difference(interface) {
        Some(problem) => Err(RuntimeError::CoreAi { doing, problem }),
        None => Ok(seconds(described.elapsed_s)),
    }
}

/// Seconds that a worker told; nonsense is nothing.
fn seconds(told: f64) -> Duration {
    Duration::try_from_secs_f64(told).unwrap_or_default()
}

/// An asset that a worker has loaded.
struct CoreAiLoaded {
    model: Arc<Model>,
    worker: Mutex<Worker>,
    load_limit: Duration,
    loading: Mutex<Loading>,
    /// What the last prediction of each function took and gave.
    calls: Mutex<Vec<Call>>,
    sessions: AtomicU64,
}

/// The tensors of a prediction.
struct Call {
    function: String,
    takes: Vec<Spec>,
    gives: Vec<Spec>,
}

impl CoreAiLoaded {
    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loading_now(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interface(&self, function: &str) -> Result<&Interface, RuntimeError> {
        self.model.interface(function).ok_or_else(|| RuntimeError::NoFunction {
            name: function.to_owned(),
            known: self.model.interfaces().iter().map(|interface| interface.function.clone()).collect(),
        })
    }

    fn new_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Remembers what a prediction took and gave; allocates only where that is new.
    fn remember(&self, function: &str, inputs: &[(&str, TensorView<'_>)], outputs: &[Received]) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |specs: &[Spec]| {
            specs.len() == inputs.len()
                && specs.iter().zip(inputs).all(|(spec, (name, view))| {
                    spec.name == *name
                        && spec.shape.iter().map(|&size| size as usize).eq(view.shape().iter().copied())
                })
        };
        if calls.iter().any(|call| call.function == function && same(&call.takes)) {
            return;
        }
        calls.retain(|call| call.function != function);
        calls.push(Call {
            function: function.to_owned(),
            takes: inputs.iter().filter_map(|(name, view)| Spec::of(name, view)).collect(),
            gives: outputs.iter().filter_map(Received::spec).collect(),
        });
    }

    /// What a call takes that predicts nothing: the median of several.
    fn overhead_of(&self, call: &Call) -> Result<Duration, RuntimeError> {
        let zeros: Vec<(&str, Tensor)> =
            call.takes.iter().filter_map(|spec| Some((spec.name.as_str(), zeros(spec)?))).collect();
        let tensors: Vec<(&str, TensorView<'_>)> =
            zeros.iter().map(|(name, zero)| (*name, zero.view())).collect();
        let header = json!({"do": "echo", "tensors": call.takes, "gives": call.gives});
        let doing = format!("call the function `{}` without a prediction", call.function);
        let question = Question { doing: &doing, header: &header, tensors: &tensors, limit: self.load_limit };
        let mut received = Vec::new();
        let mut times = Vec::with_capacity(OVERHEAD_CALLS);
        for _ in 0..OVERHEAD_CALLS {
            let began = Instant::now();
            let _: Value = self.worker().ask(&question, &mut received)?;
            times.push(began.elapsed());
        }
        times.sort();
        Ok(times[OVERHEAD_CALLS / 2])
    }
}

fn zeros(spec: &Spec) -> Option<Tensor> {
    let dtype: DType = type_of(&spec.dtype)?;
    let shape: Vec<usize> =
        spec.shape.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<_>>()?;
    let bytes = dtype.byte_len(shape.iter().product())?;
    Tensor::new(dtype, shape.as_slice().into(), vec![0; bytes].into()).ok()
}

impl LoadedModel for CoreAiLoaded {
    fn model(&self) -> &Model {
        &self.model
    }

    fn session(self: Arc<Self>) -> Box<dyn Session> {
        Box::new(session::CoreAiSession::new(self))
    }

    fn prepare(&self, functions: &[&str]) -> Result<(), RuntimeError> {
        for &function in functions {
            if self.loading_now().functions.iter().any(|load| load.function == function) {
                continue;
            }
            let elapsed = load_function(&mut self.worker(), self.interface(function)?, self.load_limit)?;
            let load = FunctionLoad { function: function.to_owned(), elapsed };
            self.loading_now().functions.push(load);
        }
        Ok(())
    }

    fn loading(&self) -> Loading {
        self.loading_now().clone()
    }

    fn call_overheads(&self) -> Result<Vec<CallOverhead>, RuntimeError> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut overheads = Vec::new();
        for call in calls.iter() {
            let microseconds = self.overhead_of(call)?.as_secs_f64() * 1e6;
            overheads.push(CallOverhead { function: call.function.clone(), microseconds });
        }
        Ok(overheads)
    }
}
