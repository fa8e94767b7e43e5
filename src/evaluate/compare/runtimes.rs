//! One package on two runtimes: do both give the same, and what does a call take on each?

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::document::{PackageOnBoth, Runtimes};
use crate::advice::{Advice, Remedy};
use crate::bundle::{Bundle, BundleError, Chunk};
use crate::compare::SCHEMA;
use crate::generate::{Clock, SystemClock};
use crate::kernels::convert::to_f32;
use crate::mil::{Feature, Interface};
use crate::package::PackageError;
use crate::runtime::{
    LoadOptions, LoadedModel, Runtime, RuntimeError, Session, SyntheticInputError, adapted, synthetic_inputs,
};
use crate::stats::{Direction, Ordered, Percentile, cosine};
use crate::tensor::{Tensor, TensorView};
use crate::vocabulary::RuntimeName;

/// Outputs whose cosine is lower are not the same.
pub const SAME_COSINE: f64 = 0.999;

/// A function on two runtimes, given the same inputs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionOnBoth {
    /// The function.
    pub function: String,
    /// Whether both give the same: every output equal, or its cosine at least 0.999.
    pub alike: bool,
    /// Outputs of the second runtime against those of the first.
    pub outputs: Vec<OutputDifference>,
    /// Outputs that are not floating point and were not compared.
    pub not_compared: Vec<String>,
    /// Timed calls of each, in turns.
    pub calls: usize,
    /// Calls on the first runtime.
    pub baseline: CallTime,
    /// Calls on the second.
    pub candidate: CallTime,
    /// How much longer a call takes on the second, by medians, in milliseconds.
    pub overhead_ms: f64,
    /// The same in per cent of the first.
    pub overhead_pct: Option<f64>,
}

/// An output of the second runtime against that of the first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputDifference {
    /// The output.
    pub output: String,
    /// Its elements.
    pub elements: usize,
    /// Largest difference of an element; absent if something is not finite.
    pub max_abs: Option<f64>,
    /// Cosine of the angle between both; absent if something is not finite.
    pub cosine: Option<f64>,
    /// Elements that are NaN or infinite on either runtime.
    pub not_finite: usize,
}

impl OutputDifference {
    fn between(output: &str, expected: &[f32], found: &[f32]) -> OutputDifference {
        let not_finite =
            found.iter().zip(expected).filter(|(f, e)| !(f.is_finite() && e.is_finite())).count();
        let differences = found.iter().zip(expected).map(|(&f, &e)| (f64::from(f) - f64::from(e)).abs());
        let finite = not_finite == 0;
        OutputDifference {
            output: output.to_owned(),
            elements: found.len(),
            max_abs: finite.then(|| differences.fold(0.0, f64::max)),
            cosine: finite.then(|| cosine(expected, found)),
            not_finite,
        }
    }
}

/// What a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallTime {
    /// The median, in milliseconds.
    pub p50_ms: f64,
    /// The slow tail, in milliseconds; absent if there are too few calls for it.
    pub p95_ms: Option<f64>,
}

/// Why two runtimes were not compared.
#[derive(Debug, thiserror::Error)]
pub enum OnBothError {
    /// The bundle cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A package cannot be read.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// No inputs can be made up.
    #[error("{package}: {error}")]
    Inputs {
        /// The package.
        package: String,
        /// Why.
        error: SyntheticInputError,
    },
    /// A runtime cannot run it.
    #[error("{package}: {runtime}: {error}")]
    Runtime {
        /// The package.
        package: String,
        /// Name of the runtime.
        runtime: RuntimeName,
        /// Why.
        error: RuntimeError,
    },
}

impl Advice for OnBothError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            OnBothError::Bundle(error) => error.remedy(),
            OnBothError::Package(error) => error.remedy(),
            OnBothError::Inputs { .. } => None,
            OnBothError::Runtime { error, .. } => error.remedy(),
        }
    }

    fn is_environment(&self) -> bool {
        matches!(self, OnBothError::Runtime { error, .. } if error.is_environment())
    }
}

/// Runs every function of a bundle, which is called `name`, on both runtimes, `calls` times each.
pub fn compare(
    (name, bundle): (String, &Bundle),
    runtimes: [&dyn Runtime; 2],
    options: &LoadOptions,
    calls: usize,
) -> Result<Runtimes, OnBothError> {
    let chunks = bundle.manifest().chunks.iter();
    let packages = chunks.map(|chunk| chunk_on_both((bundle, chunk), runtimes, options, calls));
    let packages: Vec<PackageOnBoth> = packages.collect::<Result<_, _>>()?;
    let [baseline, candidate] = runtimes.map(Runtime::name);
    Ok(Runtimes {
        schema: SCHEMA,
        kind: "runtimes",
        subject: name,
        baseline,
        candidate,
        alike: packages.iter().flat_map(|package| &package.functions).all(|function| function.alike),
        packages,
    })
}

fn chunk_on_both(
    (bundle, chunk): (&Bundle, &Chunk),
    runtimes: [&dyn Runtime; 2],
    options: &LoadOptions,
    calls: usize,
) -> Result<PackageOnBoth, OnBothError> {
    let name = chunk.file.name.clone();
    let load = |runtime: &dyn Runtime| -> Result<On, OnBothError> {
        let failed = |error| OnBothError::Runtime { package: name.clone(), runtime: runtime.name(), error };
        let package = match runtime.open(&bundle.file_for(chunk, runtime.name())?) {
            Err(RuntimeError::Package(error)) => return Err(error.into()),
            opened => opened.map_err(failed)?,
        };
        let loaded = runtime.load(&package, options).map_err(failed)?;
        Ok(On { runtime: runtime.name(), loaded })
    };
    let both = [load(runtimes[0])?, load(runtimes[1])?];
    // The functions are those of the package, which an asset has at each of their shapes.
    let described = match both[0].runtime {
        RuntimeName::CoreAi => Arc::clone(&both[1].loaded),
        _ => Arc::clone(&both[0].loaded),
    };
    let both =
        both.map(|on| On { loaded: adapted(on.loaded, &chunk.calls(on.runtime)), runtime: on.runtime });
    let functions = functions_on_both(&both, described.model().interfaces(), calls, &SystemClock::default());
    let functions = functions.map_err(|problem| match problem {
        Problem::Inputs(error) => OnBothError::Inputs { package: name.clone(), error },
        Problem::Runtime { runtime, error } => OnBothError::Runtime { package: name.clone(), runtime, error },
    })?;
    Ok(PackageOnBoth { package: name, functions })
}

/// Why a function was not run on both.
#[derive(Debug)]
enum Problem {
    Inputs(SyntheticInputError),
    Runtime { runtime: RuntimeName, error: RuntimeError },
}

/// A package that a runtime has loaded.
#[derive(Clone)]
struct On {
    runtime: RuntimeName,
    loaded: Arc<dyn LoadedModel>,
}

/// Runs every function on both at its default shapes, on pseudo-random inputs that are the same every time. The first
/// call of each is compared and not timed; `calls` more are timed, in turns.
fn functions_on_both(
    both: &[On; 2],
    interfaces: &[Interface],
    calls: usize,
    clock: &dyn Clock,
) -> Result<Vec<FunctionOnBoth>, Problem> {
    interfaces.iter().map(|interface| on_both(both, interface, calls, clock)).collect()
}

fn on_both(
    both: &[On; 2],
    interface: &Interface,
    calls: usize,
    clock: &dyn Clock,
) -> Result<FunctionOnBoth, Problem> {
    let inputs = synthetic_inputs(interface).map_err(Problem::Inputs)?;
    let mut sides = both.each_ref().map(|on| Side::new(on, interface, &inputs));
    for side in &mut sides {
        side.call(clock)?;
        side.ms.clear();
    }
    let (compared, not_compared): (Vec<&Feature>, Vec<&Feature>) =
        interface.outputs.iter().partition(|feature| sides.iter().all(|side| side.has(&feature.name)));
    let mut alike = true;
    let mut outputs = Vec::new();
    for feature in compared {
        let [expected, found] = sides.each_ref().map(|side| side.output(&feature.name));
        let equal = expected.iter().map(|x| x.to_bits()).eq(found.iter().map(|x| x.to_bits()));
        let output = OutputDifference::between(&feature.name, &expected, &found);
        let near = found.len() == expected.len() && output.cosine.is_some_and(|cosine| cosine >= SAME_COSINE);
        alike &= equal || near;
        outputs.push(output);
    }
    for call in 0..calls {
        let order = if call.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for side in order {
            sides[side].call(clock)?;
        }
    }
    let [baseline, candidate] = sides.each_ref().map(Side::time);
    let overhead_ms = candidate.p50_ms - baseline.p50_ms;
    let overhead_pct = Some(100.0 * overhead_ms / baseline.p50_ms).filter(|pct| pct.is_finite());
    Ok(FunctionOnBoth {
        function: interface.function.clone(),
        alike,
        outputs,
        not_compared: not_compared.into_iter().map(|feature| feature.name.clone()).collect(),
        calls,
        baseline,
        candidate,
        overhead_ms,
        overhead_pct,
    })
}

/// A function on one of the two.
struct Side<'a> {
    runtime: RuntimeName,
    function: &'a str,
    inputs: Vec<(&'a str, TensorView<'a>)>,
    session: Box<dyn Session>,
    ms: Vec<f64>,
}

impl<'a> Side<'a> {
    fn new(on: &On, interface: &'a Interface, inputs: &'a [(String, Tensor)]) -> Side<'a> {
        Side {
            runtime: on.runtime,
            function: &interface.function,
            inputs: inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect(),
            session: on.loaded.clone().session(),
            ms: Vec::new(),
        }
    }

    fn call(&mut self, clock: &dyn Clock) -> Result<(), Problem> {
        let began = clock.now();
        let done = self.session.predict(self.function, &self.inputs);
        self.ms.push(clock.now().saturating_sub(began).as_secs_f64() * 1e3);
        done.map_err(|error| Problem::Runtime { runtime: self.runtime, error })
    }

    fn has(&self, output: &str) -> bool {
        self.session.output(output).is_some_and(|view| view.dtype().is_float())
    }

    fn output(&self, name: &str) -> Vec<f32> {
        let Some(view) = self.session.output(name) else { return Vec::new() };
        let mut values = vec![0.0; view.len()];
        to_f32(&view, 0..view.len(), &mut values);
        values
    }

    fn time(&self) -> CallTime {
        let ordered = Ordered::new(&self.ms, Direction::LowerIsBetter);
        CallTime {
            p50_ms: ordered.as_ref().map_or(0.0, |ordered| ordered.quantile(0.5)),
            p95_ms: ordered.and_then(|ordered| ordered.percentile(Percentile::P95)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use half::f16;

    use std::path::Path;

    use super::*;
    use crate::generate::ManualClock;
    use crate::mil::verify::verify;
    use crate::mil::{Builder, Literal, Model, Opset, TensorType};
    use crate::package::{Package, WriteOptions, write};
    use crate::runtime;
    use crate::tensor::DType;

    /// `x * w` on the CPU runtime.
    fn loaded(weight: f32, folder: &Path) -> Arc<dyn LoadedModel> {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F16, &[1, 4]));
        let weights = [weight, 1.0, 1.0, 1.0].map(f16::from_f32);
        let w = main.constant("w", Literal::blob(&Tensor::from_slice(&[1, 4], &weights).unwrap()));
        let out = main.op("mul").arg("x", x).arg("y", w).named("y").push().unwrap();
        let model = verify(Model::single(main.finish(&[out]))).unwrap();
        let path = folder.join("x.mlpackage");
        write(&model, &path, WriteOptions::default()).unwrap();
        runtime::cpu().load(&Package::open(&path).unwrap(), &LoadOptions::default()).unwrap()
    }

    /// A package whose calls take a time that is set.
    struct Slow {
        loaded: Arc<dyn LoadedModel>,
        clock: ManualClock,
        ms: u64,
    }

    impl LoadedModel for Slow {
        fn model(&self) -> &Model {
            self.loaded.model()
        }

        fn session(self: Arc<Self>) -> Box<dyn Session> {
            let (clock, time) = (self.clock.clone(), Duration::from_millis(self.ms));
            runtime::around(self.loaded.clone().session(), move |prediction| {
                clock.advance(time);
                prediction.run()
            })
        }
    }

    fn compared(weights: [f32; 2], ms: [u64; 2], calls: usize) -> FunctionOnBoth {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let clock = ManualClock::default();
        let on = |index: usize| On {
            runtime: RuntimeName::Cpu,
            loaded: Arc::new(Slow {
                loaded: loaded(weights[index], folders[index].path()),
                clock: clock.clone(),
                ms: ms[index],
            }),
        };
        let both = [on(0), on(1)];
        let interfaces = both[0].loaded.model().interfaces();
        functions_on_both(&both, interfaces, calls, &clock).unwrap().remove(0)
    }

    #[test]
    fn times_are_those_of_each_and_the_first_call_does_not_count() {
        let found = compared([1.0, 1.0], [4, 5], 20);
        assert!(found.alike);
        assert_eq!((found.function.as_str(), found.calls), ("main", 20));
        assert_eq!(found.baseline, CallTime { p50_ms: 4.0, p95_ms: Some(4.0) });
        assert_eq!(found.candidate, CallTime { p50_ms: 5.0, p95_ms: Some(5.0) });
        assert_eq!((found.overhead_ms, found.overhead_pct), (1.0, Some(25.0)));
        assert_eq!(compared([1.0, 1.0], [4, 5], 3).baseline.p95_ms, None);
    }

    #[test]
    fn outputs_that_differ_are_not_alike() {
        let found = compared([1.0, -40.0], [1, 1], 1);
        assert!(!found.alike);
        assert!(found.outputs[0].cosine.unwrap() < SAME_COSINE && found.outputs[0].max_abs.unwrap() > 0.0);
        let same = compared([2.0, 2.0], [0, 0], 1);
        assert_eq!((same.outputs[0].max_abs, same.outputs[0].cosine), (Some(0.0), Some(1.0)));
        assert_eq!(same.overhead_pct, None, "nothing takes no time");
    }

    #[test]
    fn equal_infinities_are_alike() {
        let found = compared([f32::INFINITY, f32::INFINITY], [1, 1], 1);
        assert!(found.alike);
        assert_eq!((found.outputs[0].cosine, found.outputs[0].not_finite), (None, 1));
    }
}
