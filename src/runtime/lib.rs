//! Runtimes: a package goes in, predictions come out.
//!
//! A [`Runtime`] says whether it can work here and why not, [`LoadedModel`] is a package it has loaded and may be
//! shared, and a [`Session`] is one user of it, with states of its own. Names are strict: asking for a
//! runtime that is unavailable is an error, never another runtime.

mod adapt;
mod around;
mod compiled;
pub mod coreai;
#[cfg(any(target_os = "macos", coreml_standin))]
pub mod coreml;
#[cfg(all(feature = "coreml-rs", target_os = "macos"))]
mod coreml_rs;
pub mod cpu;
mod delegate;
mod error;
mod held_state;
mod inputs;
mod loading;
pub mod placement;
pub mod reason;
#[cfg(any(test, target_os = "macos", coreml_standin))]
mod strided;
mod synthetic_inputs;
#[cfg(not(all(feature = "coreml-rs", target_os = "macos")))]
mod unavailable;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anemeter_base::engine::CallOverhead;
use anemeter_base::vocabulary::{ComputeUnits, RuntimeName};
use anemeter_kernels::tensor::{AlignedBuf, Tensor, TensorView};
use anemeter_mil::Model;
use anemeter_mil::op::Numerics;
use anemeter_mil::package::Package;

pub use adapt::adapted;
pub use around::{Prediction, around};
pub use compiled::{CacheEntry, CompileCache, Key};
pub use coreai::CoreAiRuntime;
#[cfg(any(target_os = "macos", coreml_standin))]
pub use coreml::CoreMlRuntime;
#[cfg(all(feature = "coreml-rs", target_os = "macos"))]
pub use coreml_rs::CoreMlRsRuntime;
pub use cpu::CpuRuntime;
pub use error::RuntimeError;
pub use held_state::HeldState;
pub use inputs::check as check_inputs;
pub use loading::{Compilation, FunctionLoad, Hints, Loading, ReshapeFrequency, Specialization};
pub use placement::Placement;
pub use synthetic_inputs::{
    SYNTHETIC_VALUES, SyntheticInputError, SyntheticValues, synthetic_inputs, synthetic_inputs_of,
};

/// Somewhere a package can be executed.
pub trait Runtime: Send + Sync {
    /// Its name.
    fn name(&self) -> RuntimeName;

    /// Whether it can work on this machine.
    fn availability(&self) -> Availability;

    /// What stands behind it, where that is another program, in words.
    fn about(&self) -> Option<String> {
        None
    }

    /// Whether it executes the functions and states of bundles, and not single functions only.
    fn runs_bundles(&self) -> bool {
        true
    }

    /// Opens what it executes: a package, unless it says otherwise.
    fn open(&self, path: &Path) -> Result<Package, RuntimeError> {
        match coreai::is_asset(path) {
            true => Err(RuntimeError::asset(path, self.name())),
            false => Ok(Package::open(path)?),
        }
    }

    /// Loads a package.
    fn load(&self, package: &Package, options: &LoadOptions) -> Result<Arc<dyn LoadedModel>, RuntimeError>;
}

/// Whether a runtime can work here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It can be used.
    Ready,
    /// It cannot, for this reason.
    Unavailable(String),
}

/// How a package is to be executed.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// How fp16 arithmetic is carried out, where the runtime has a choice.
    pub numerics: Numerics,
    /// Threads to use; the number of physical cores if none is given.
    pub threads: Option<usize>,
    /// Bytes that the values of one prediction may take; the machine's memory if none is given.
    pub memory: Option<usize>,
    /// Operations that one prediction may carry out, those of loops each time; ten million if none is given.
    pub steps: Option<u64>,
    /// Whether operations may be carried out as parts of others, where the runtime has a choice. An observer then does not see
    /// every value.
    pub fuse: bool,
    /// Where operations may run, where the runtime has a choice.
    pub units: ComputeUnits,
    /// What the runtime may know of the use that is made of the model.
    pub hints: Hints,
    /// The longest that compiling a package or loading a function may take.
    pub load_limit: Duration,
}

/// First loads have been seen to take four minutes.
const LOAD_LIMIT: Duration = Duration::from_secs(15 * 60);

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            numerics: Numerics::default(),
            threads: None,
            memory: None,
            steps: None,
            fuse: true,
            units: ComputeUnits::default(),
            hints: Hints::default(),
            load_limit: LOAD_LIMIT,
        }
    }
}

/// A package that is loaded and shared by its sessions.
pub trait LoadedModel: Send + Sync {
    /// What was loaded.
    fn model(&self) -> &Model;

    /// Starts a session; its states are zero.
    fn session(self: Arc<Self>) -> Box<dyn Session>;

    /// Makes functions ready that would otherwise be made ready by their first prediction.
    fn prepare(&self, functions: &[&str]) -> Result<(), RuntimeError> {
        let _ = functions;
        Ok(())
    }

    /// What making it ready took so far, as far as the runtime tells.
    fn loading(&self) -> Loading {
        Loading::default()
    }

    /// What calling each function takes that was predicted, without its prediction; none where nothing lies between a call
    /// and the prediction. It is measured now.
    fn call_overheads(&self) -> Result<Vec<CallOverhead>, RuntimeError> {
        Ok(Vec::new())
    }

    /// Where the operations of functions are planned to run; `None` if the runtime has no choice.
    fn placement(&self, functions: &[&str]) -> Result<Option<Placement>, RuntimeError> {
        let _ = functions;
        Ok(None)
    }
}

/// One user of a loaded package.
pub trait Session: Send {
    /// Runs one prediction of a function. Inputs are named; every input must be given, with a type and a
    /// shape that the function allows.
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError>;

    /// Waits until `is_over` says so, as ready for the next prediction as right after the last. Sleeping would be too
    /// coarse for predictions of microseconds.
    fn wait(&mut self, is_over: &(dyn Fn() -> bool + Sync)) {
        while !is_over() {
            std::hint::spin_loop();
        }
    }

    /// An output of the last prediction.
    fn output(&self, name: &str) -> Option<TensorView<'_>>;

    /// A state, as it is now.
    fn state(&self, name: &str) -> Option<TensorView<'_>>;

    /// Replaces a state.
    fn set_state(&mut self, name: &str, value: &Tensor) -> Result<(), RuntimeError>;

    /// Exchanges a state with one that is held outside, of the same type and shape.
    fn exchange_state(&mut self, name: &str, held: &mut HeldState) -> Result<(), RuntimeError> {
        let error = |problem: String| RuntimeError::State { name: name.to_owned(), problem };
        let current = self.state(name).ok_or_else(|| error("the model has no such state".to_owned()))?;
        let buffer = AlignedBuf::from_slice(current.bytes());
        let given = held.take().map_err(|e| error(e.to_string()))?;
        held.buffer = buffer;
        self.set_state(name, &given)
    }

    /// Names of the states, in order.
    fn state_names(&self) -> Vec<String>;

    /// Watches the following predictions, or stops watching; gives back who watched so far.
    fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>>;
}

/// Told about every operation as it is executed.
pub trait Observer: Send {
    /// An operation has been executed.
    fn executed(&mut self, step: &OpExecution<'_>);

    /// Takes the observer back as what it is.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// One executed operation.
pub struct OpExecution<'a> {
    /// Its kind, such as `conv`.
    pub kind: &'static str,
    /// The name of its first output, or its kind.
    pub name: &'a str,
    /// When it started.
    pub started: std::time::Instant,
    /// How long it took.
    pub elapsed: Duration,
    /// What it produced.
    pub outputs: &'a [TensorView<'a>],
    /// Bytes of its arguments and results, weights as they are stored.
    pub bytes: usize,
    /// Floating-point operations, where it is a product; zero elsewhere.
    pub flops: usize,
}

/// Every runtime that this program knows, the preferred first.
pub fn runtimes() -> Vec<&'static dyn Runtime> {
    vec![
        core_ml(),
        &CpuRuntime,
        core_ai(),
        #[cfg(all(feature = "coreml-rs", target_os = "macos"))]
        &CoreMlRsRuntime,
        #[cfg(not(all(feature = "coreml-rs", target_os = "macos")))]
        &unavailable::CORE_ML_RS,
    ]
}

#[cfg(any(target_os = "macos", coreml_standin))]
fn core_ml() -> &'static dyn Runtime {
    static CORE_ML: CoreMlRuntime = CoreMlRuntime::new();
    &CORE_ML
}

#[cfg(not(any(target_os = "macos", coreml_standin)))]
fn core_ml() -> &'static dyn Runtime {
    &unavailable::CORE_ML
}

fn core_ai() -> &'static dyn Runtime {
    static CORE_AI: CoreAiRuntime = CoreAiRuntime::new();
    &CORE_AI
}

/// The runtime of a name if it is available; without a name the first that is.
pub fn choose(name: Option<RuntimeName>) -> Result<&'static dyn Runtime, RuntimeError> {
    let mut runtimes = runtimes().into_iter();
    let Some(name) = name else {
        let first = runtimes.find(|runtime| runtime.availability() == Availability::Ready);
        return first.ok_or_else(|| RuntimeError::Environment("no runtime is available".to_owned()));
    };
    let runtime = runtimes.find(|runtime| runtime.name() == name).expect("every name is in the list");
    match runtime.availability() {
        Availability::Ready => Ok(runtime),
        Availability::Unavailable(why) => {
            Err(RuntimeError::Environment(format!("the runtime `{name}` is unavailable: {why}")))
        }
    }
}

/// The embedded CPU runtime.
pub fn cpu() -> CpuRuntime {
    CpuRuntime
}

#[cfg(all(test, not(any(target_os = "macos", coreml_standin))))]
mod tests {
    use super::*;
    use anemeter_base::vocabulary::Choice;

    #[test]
    fn names_are_strict_and_without_one_the_first_that_is_available_is_taken() {
        assert_eq!(choose(None).unwrap().name(), RuntimeName::Cpu);
        assert_eq!(runtimes().iter().map(|runtime| runtime.name()).collect::<Vec<_>>(), RuntimeName::ALL);
        for &name in RuntimeName::ALL {
            match choose(Some(name)) {
                Ok(runtime) => {
                    assert_eq!(runtime.name(), name);
                    assert!(matches!(name, RuntimeName::Cpu | RuntimeName::CoreAi), "{name}");
                }
                Err(error) => {
                    let expected = format!("the runtime `{name}` is unavailable: ");
                    assert!(error.to_string().starts_with(&expected), "{error}");
                }
            }
        }
    }
}
