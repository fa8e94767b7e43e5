//! Packages that are loaded and predicted, function by function.

use std::sync::Arc;
use std::time::Duration;

use super::samples::{InputSamples, Sample, of_case};
use super::{PlannedCase, PredictUse};
use crate::generate::Clock;
use crate::open::{OpenError, ReadyPart, load_options, load_part};
use crate::protocol::ModelUse;
use crate::requests::{Done, First, Measured, Requests, Undone, ms};
use crate::slow_down::slowed_down;
use anemeter_base::vocabulary::StateUse;
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_measure::report::{Case, Prediction};
use anemeter_mil::package::Package;
use anemeter_mil::{FeatureType, Interface, Model};
use anemeter_runtime::Session;

/// Cases that are ready to be predicted.
pub(crate) struct Predictor {
    /// One session per package.
    sessions: Vec<Box<dyn Session>>,
    cases: Vec<ReadyCase>,
    states: StateUse,
    clock: Arc<dyn Clock>,
    /// How inputs came to be, for what is said of them.
    inputs: &'static str,
}

struct ReadyCase {
    package: usize,
    case: Case,
    samples: Vec<Sample>,
    /// Zeros for the states of its package.
    zeros: Vec<(String, Tensor)>,
    /// Its outputs that may be NaN.
    floats: Vec<String>,
}

/// Packages that are loaded, and the moments when they were opened and when they were ready.
pub(crate) struct Loaded {
    pub(crate) predictor: Predictor,
    pub(crate) parts: Vec<ReadyPart>,
    pub(crate) opened: Duration,
    pub(crate) ready: Duration,
}

impl Predictor {
    /// Opens and loads packages.
    pub(crate) fn open(
        wanted: &PredictUse,
        model: &ModelUse,
        clock: &Arc<dyn Clock>,
    ) -> Result<Loaded, OpenError> {
        let runtime = anemeter_runtime::choose(Some(model.runtime))?;
        let packages = wanted.packages.iter().map(|path| runtime.open(path));
        let packages: Vec<Package> = packages.collect::<Result<_, _>>()?;
        let opened = clock.now();
        let options = load_options(model);
        let mut parts = Vec::new();
        for (index, package) in packages.iter().enumerate() {
            let of_package = || wanted.cases.iter().filter(move |planned| planned.package == index);
            let name = of_package().next().map(|planned| planned.case.package.clone()).unwrap_or_default();
            let mut functions: Vec<String> =
                of_package().map(|planned| planned.case.function.clone()).collect();
            functions.dedup();
            let calls: Vec<_> = functions.iter().map(|name| (name.as_str(), vec![name.as_str()])).collect();
            parts.push(load_part(runtime, name, package, &calls, &options)?);
        }
        let slow = |session: Box<dyn Session>| match model.slow_down_pct {
            Some(percent) => slowed_down(session, Arc::clone(clock), percent),
            None => session,
        };
        let sessions = parts.iter().map(|part| slow(Arc::clone(&part.loaded).session())).collect();
        let ready = clock.now();
        let given = wanted.inputs.as_deref().map(InputSamples::read).transpose();
        let given = given.map_err(|error| OpenError::Inputs(error.to_string()))?;
        let inputs = if given.is_some() { "inputs of a file" } else { "inputs that are made up" };
        let cases = wanted.cases.iter().map(|planned| {
            let model_of = packages[planned.package].model();
            ready_case(planned, model_of, given.as_ref(), (wanted, model.seed)).map_err(OpenError::Inputs)
        });
        let cases = cases.collect::<Result<_, _>>()?;
        let clock = Arc::clone(clock);
        let predictor = Predictor { sessions, cases, states: wanted.states, clock, inputs };
        Ok(Loaded { predictor, parts, opened, ready })
    }

    /// One prediction of a case, timed.
    fn predict(&mut self, at: usize, sample: usize) -> Result<Duration, String> {
        let ReadyCase { package, case, samples, zeros, .. } = &self.cases[at];
        let session = &mut self.sessions[*package];
        if self.states == StateUse::Fresh {
            for (name, zero) in zeros {
                session.set_state(name, zero).map_err(|e| e.to_string())?;
            }
        }
        let inputs: Vec<_> =
            samples[sample].0.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        let began = self.clock.now();
        let done = session.predict(&case.function, &inputs);
        let elapsed = self.clock.now().saturating_sub(began);
        done.map(|()| elapsed).map_err(|error| format!("{}: {error}", case.name.escape_debug()))
    }

    fn record(&self, at: usize, sample: usize, started: Duration, latency: Duration) -> Prediction {
        Prediction {
            slot: 0,
            case: self.cases[at].case.name.clone(),
            sample,
            first: false,
            started_ms: ms(started),
            latency_ms: ms(latency),
            resident_bytes: None,
            private_bytes: None,
        }
    }

    /// The first output of the last prediction of a case that is not a number.
    fn not_a_number(&self, at: usize) -> Option<String> {
        let ReadyCase { package, case, floats, .. } = &self.cases[at];
        let has_nan = |name: &&String| {
            let Some(view) = self.sessions[*package].output(name) else { return false };
            let mut values = vec![0.0f32; view.len()];
            let count = values.len();
            to_f32(&view, 0..count, &mut values);
            values.iter().any(|value| value.is_nan())
        };
        let name = floats.iter().find(has_nan)?;
        let (case, name) = (case.name.escape_debug(), name.escape_debug());
        Some(format!("output `{name}` of {case} holds NaN, for {}", self.inputs))
    }
}

impl Requests for Predictor {
    fn first(&mut self, began: Duration) -> Result<First, String> {
        let mut records = Vec::new();
        let mut elapsed = None;
        for at in 0..self.cases.len() {
            let started = self.clock.now().saturating_sub(began);
            let latency = self.predict(at, 0)?;
            elapsed.get_or_insert(latency);
            let record = Prediction { first: true, ..self.record(at, 0, started, latency) };
            records.push(Measured::Prediction(record));
        }
        Ok(First { elapsed: elapsed.unwrap_or_default(), records })
    }

    fn request(&mut self, slot: usize, at: usize, started: Duration) -> Result<Done, Undone> {
        let Some(ready) = self.cases.get(at) else {
            return Err(Undone::Failed(format!("there is no case {at}")));
        };
        let sample = slot % ready.samples.len().max(1);
        let latency = self.predict(at, sample).map_err(Undone::Failed)?;
        let record = Prediction { slot, ..self.record(at, sample, started, latency) };
        Ok(Done { measured: Measured::Prediction(record), steps: vec![latency], tokens: 0 })
    }

    fn check(&self, at: usize) -> Option<String> {
        self.not_a_number(at)
    }
}

fn ready_case(
    planned: &PlannedCase,
    model: &Model,
    given: Option<&InputSamples>,
    wanted: (&PredictUse, u64),
) -> Result<ReadyCase, String> {
    let PlannedCase { package, case } = planned;
    let empty = Interface::default();
    let interface = model.interface(&case.function).unwrap_or(&empty);
    let samples = of_case(case, interface, given, wanted)?;
    if samples.is_empty() {
        return Err(format!("there are no inputs for {}", case.name.escape_debug()));
    }
    let floats = interface.outputs.iter().filter(|feature| match &feature.ty {
        FeatureType::Array(array) => array.dtype.is_float(),
        _ => false,
    });
    let floats = floats.map(|feature| feature.name.clone()).collect();
    Ok(ReadyCase { package: *package, case: case.clone(), samples, zeros: zeros(interface)?, floats })
}

/// Zeros in the shapes of the states of a function.
fn zeros(interface: &Interface) -> Result<Vec<(String, Tensor)>, String> {
    let zero = |feature: &anemeter_mil::Feature| {
        let (FeatureType::State(array) | FeatureType::Array(array)) = &feature.ty else { return None };
        let shape: Vec<usize> =
            array.shape.iter().map(|&size| usize::try_from(size)).collect::<Result<_, _>>().ok()?;
        Some((feature.name.clone(), array.dtype, shape))
    };
    let states = interface.states.iter().filter_map(zero);
    states.map(|(name, dtype, shape)| zero_tensor(dtype, &shape).map(|tensor| (name, tensor))).collect()
}

fn zero_tensor(dtype: DType, shape: &[usize]) -> Result<Tensor, String> {
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    let count = count.ok_or_else(|| format!("a state of shape {shape:?} is too large"))?;
    anemeter_kernels::convert::from_f32(dtype, shape, &vec![0.0; count]).map_err(|error| error.to_string())
}
