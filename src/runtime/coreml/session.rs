//! One user of a loaded package: arrays that are reused, states, outputs of the last prediction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use objc2::AnyThread;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{AnyObject, ProtocolObject};
use objc2_core_ml::{
    MLDictionaryFeatureProvider, MLFeatureProvider, MLFeatureType, MLFeatureValue, MLModel, MLMultiArray,
    MLPredictionOptions,
};
use objc2_foundation::{NSDictionary, NSString};
use smallvec::SmallVec;

use super::array::{ArrayCopy, OwnedArray, lend};
use super::state::States;
use super::{CoreMlLoaded, error};
use crate::{LoadedModel, Observer, RuntimeError, Session, inputs};
use anemeter_kernels::tensor::{DType, Shape, Tensor, TensorView};
use anemeter_mil::{Feature, FeatureType, Interface};

/// Inputs from this size on are lent to Core ML rather than copied.
const LENT_BYTES: usize = 64 << 10;
/// Only memory that begins on such a boundary is lent.
const LENT_ALIGNMENT: usize = 64;

type Inputs<'a> = [(&'a str, TensorView<'a>)];
type Loans = SmallVec<[Arc<AtomicBool>; 8]>;

pub(super) struct CoreMlSession {
    loaded: Arc<CoreMlLoaded>,
    states: States,
    /// Small inputs, by name and shape.
    inputs: Vec<(String, OwnedArray)>,
    /// What each function gave for the shapes it was given.
    results: Vec<Results>,
    /// Results of the last prediction.
    current: Option<usize>,
    /// Whether large inputs are lent.
    lends: bool,
}

/// Outputs of a function at a set of input shapes.
struct Results {
    function: String,
    shapes: SmallVec<[Shape; 16]>,
    outputs: Vec<Output>,
    /// Whether outputs are written into arrays of ours.
    backing: Backing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Backing {
    /// Not yet: shapes are not known before the first prediction.
    Unknown,
    Used,
    /// Never: the function has states, so that a prediction cannot be repeated without, or Core ML refused.
    Refused,
}

struct Output {
    name: String,
    dtype: DType,
    backing: Option<OwnedArray>,
    /// Whether the last prediction wrote into the backing.
    backed: bool,
    copied: ArrayCopy,
}

impl Output {
    fn view(&self) -> Option<TensorView<'_>> {
        match (&self.backing, self.backed) {
            (Some(backing), true) => backing.view(),
            _ => self.copied.view(),
        }
    }
}

impl CoreMlSession {
    pub(super) fn new(loaded: Arc<CoreMlLoaded>) -> CoreMlSession {
        let states = States::of(loaded.model());
        CoreMlSession { loaded, states, inputs: Vec::new(), results: Vec::new(), current: None, lends: true }
    }

    /// Checks everything that Core ML would answer with an exception.
    fn check(&self, function: &str, given: &Inputs<'_>) -> Result<(), RuntimeError> {
        let model = self.loaded.model();
        let program = model.program.functions.iter().find(|f| f.name == function);
        let (Some(program), Some(interface)) = (program, model.interface(function)) else {
            let known = model.interfaces().iter().map(|i| i.function.clone()).collect();
            return Err(RuntimeError::NoFunction { name: function.to_owned(), known });
        };
        let mut problems = inputs::check(program, interface, given);
        let features = interface.inputs.iter().chain(&interface.outputs);
        problems.extend(features.filter(|f| matches!(f.ty, FeatureType::Image(_))).map(|feature| {
            format!("`{}` is an image, and the coreml runtime takes and gives no images", feature.name)
        }));
        match problems.is_empty() {
            true => Ok(()),
            false => Err(RuntimeError::Inputs { function: function.to_owned(), problems }),
        }
    }

    /// Where results of a function at these shapes are kept.
    fn results(&mut self, interface: &Interface, given: &Inputs<'_>) -> usize {
        let same = |results: &Results| {
            results.function == interface.function
                && results.shapes.len() == given.len()
                && results.shapes.iter().zip(given).all(|(shape, (_, view))| shape[..] == *view.shape())
        };
        if let Some(index) = self.results.iter().position(same) {
            return index;
        }
        // Labels and probabilities by name are no tensors: Core ML computes them, and nobody reads them here.
        let output = |feature: &Feature| {
            let FeatureType::Array(array) = &feature.ty else { return None };
            let (name, dtype) = (feature.name.clone(), array.dtype);
            Some(Output { name, dtype, backing: None, backed: false, copied: ArrayCopy::default() })
        };
        let has_states = !interface.states.is_empty();
        self.results.push(Results {
            function: interface.function.clone(),
            shapes: given.iter().map(|(_, view)| view.shape().into()).collect(),
            outputs: interface.outputs.iter().filter_map(output).collect(),
            backing: if has_states { Backing::Refused } else { Backing::Unknown },
        });
        self.results.len() - 1
    }

    fn predict_in_pool(
        &mut self,
        interface: &Interface,
        given: &Inputs<'_>,
        results: usize,
        loans: &mut Loans,
    ) -> Result<(), RuntimeError> {
        let function = self.loaded.function(&interface.function)?;
        let provider = self.provider(interface, given, loans)?;
        let provider = ProtocolObject::from_ref(&*provider);
        let doing = format!("run the function `{}`", interface.function);
        let model = function.lock();
        let given = if interface.states.is_empty() {
            self.results[results].predict(&model.0, provider, &doing)
        } else {
            let state = self.states.for_function(&model.0, interface)?;
            // SAFETY: features, state and model are live, and the state was made for this function's states.
            let given = unsafe { model.0.predictionFromFeatures_usingState_error(provider, &state) };
            given.map_err(|error| error::failed(&doing, &error))
        };
        drop(model);
        let problem = self.results[results].take(&*given?);
        problem.map_err(|problem| RuntimeError::Output { function: interface.function.clone(), problem })
    }

    /// The inputs as Core ML wants them.
    fn provider(
        &mut self,
        interface: &Interface,
        given: &Inputs<'_>,
        loans: &mut Loans,
    ) -> Result<Retained<MLDictionaryFeatureProvider>, RuntimeError> {
        let mut names: SmallVec<[Retained<NSString>; 16]> = SmallVec::new();
        let mut values: Vec<Retained<AnyObject>> = Vec::with_capacity(given.len());
        for (name, view) in given {
            let array = self.input(name, view, loans)?;
            names.push(NSString::from_str(name));
            // SAFETY: the array is live, and the value keeps it.
            values.push(unsafe { MLFeatureValue::featureValueWithMultiArray(&array) }.into());
        }
        let names: SmallVec<[&NSString; 16]> = names.iter().map(|name| &**name).collect();
        let dictionary = NSDictionary::from_retained_objects(&names, &values);
        // SAFETY: keys are strings and values feature values, as the initialiser demands.
        let provider = unsafe {
            MLDictionaryFeatureProvider::initWithDictionary_error(
                MLDictionaryFeatureProvider::alloc(),
                &dictionary,
            )
        };
        provider
            .map_err(|e| error::failed(format!("give inputs to the function `{}`", interface.function), &e))
    }

    /// The array of an input: a large one is lent, a small one copied into an array that is kept.
    fn input(
        &mut self,
        name: &str,
        view: &TensorView<'_>,
        loans: &mut Loans,
    ) -> Result<Retained<MLMultiArray>, RuntimeError> {
        let aligned = (view.bytes().as_ptr() as usize).is_multiple_of(LENT_ALIGNMENT);
        if self.lends && aligned && view.bytes().len() >= LENT_BYTES {
            let lent = lend(view)?;
            loans.push(lent.returned);
            return Ok(lent.array);
        }
        let kept = self.inputs.iter().position(|(n, array)| n == name && array.fits(view));
        let kept = match kept {
            Some(kept) => kept,
            None => {
                self.inputs.push((name.to_owned(), OwnedArray::zeroed(view.dtype(), view.shape())?));
                self.inputs.len() - 1
            }
        };
        let array = &mut self.inputs[kept].1;
        array.write(view);
        Ok(array.array().clone())
    }
}

type FeatureProvider = Retained<ProtocolObject<dyn MLFeatureProvider>>;

impl Results {
    /// A prediction without states, into arrays of ours once shapes are known. Where Core ML does not take those, it is
    /// made again without, and never asked again.
    fn predict(
        &mut self,
        model: &MLModel,
        provider: &ProtocolObject<dyn MLFeatureProvider>,
        doing: &str,
    ) -> Result<FeatureProvider, RuntimeError> {
        if self.backing == Backing::Used {
            // SAFETY: features, options and model are live; the options name outputs of this function with arrays of the
            // type and shape that it gave before.
            let given = unsafe { model.predictionFromFeatures_options_error(provider, &self.options()) };
            match given {
                Ok(given) => return Ok(given),
                Err(_) => self.backing = Backing::Refused,
            }
        }
        // SAFETY: features and model are live.
        let given = unsafe { model.predictionFromFeatures_error(provider) };
        given.map_err(|error| error::failed(doing, &error))
    }

    fn options(&self) -> Retained<MLPredictionOptions> {
        let backings = self.outputs.iter().filter_map(|output| Some((output, output.backing.as_ref()?)));
        let (names, arrays): (Vec<_>, Vec<Retained<AnyObject>>) = backings
            .map(|(output, backing)| (NSString::from_str(&output.name), backing.array().clone().into()))
            .unzip();
        let names: SmallVec<[&NSString; 8]> = names.iter().map(|name| &**name).collect();
        let backings = NSDictionary::from_retained_objects(&names, &arrays);
        // SAFETY: a plain setter on a new object; keys are strings and values arrays, as it demands.
        unsafe {
            let options = MLPredictionOptions::new();
            options.setOutputBackings(&backings);
            options
        }
    }

    /// Takes every output; says which one is not as declared.
    fn take(&mut self, given: &ProtocolObject<dyn MLFeatureProvider>) -> Result<(), String> {
        for output in &mut self.outputs {
            // SAFETY: plain getters; the value is nil if there is no such output, the array if it is something else.
            let value = unsafe { given.featureValueForName(&NSString::from_str(&output.name)) };
            let value = value.ok_or_else(|| format!("no output `{}`", output.name))?;
            // SAFETY: as above.
            let array =
                unsafe { (value.r#type() == MLFeatureType::MultiArray).then(|| value.multiArrayValue()) };
            let array =
                array.flatten().ok_or_else(|| format!("an output `{}` that is no array", output.name))?;
            let backing = output.backing.as_ref().map(|backing| Retained::as_ptr(backing.array()));
            output.backed = backing == Some(Retained::as_ptr(&array));
            if !output.backed {
                let read = output.copied.read(&array, output.dtype);
                read.map_err(|problem| format!("an output `{}` that {problem}", output.name))?;
            }
        }
        Ok(())
    }

    /// Makes arrays for the outputs of later predictions, now that their shapes are known.
    fn prepare_backing(&mut self) -> Result<(), RuntimeError> {
        if self.backing != Backing::Unknown {
            return Ok(());
        }
        for output in &mut self.outputs {
            let Some(view) = output.copied.view().filter(|view| !view.is_empty()) else { continue };
            output.backing = Some(OwnedArray::zeroed(view.dtype(), view.shape())?);
        }
        self.backing = Backing::Used;
        Ok(())
    }
}

impl Session for CoreMlSession {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        self.current = None;
        self.check(function, inputs)?;
        let loaded = Arc::clone(&self.loaded);
        let Some(interface) = loaded.model().interface(function) else { return Ok(()) };
        let results = self.results(interface, inputs);
        let mut loans = Loans::new();
        autoreleasepool(|_| {
            self.predict_in_pool(interface, inputs, results, &mut loans)?;
            self.results[results].prepare_backing()
        })?;
        if !loans.iter().all(|returned| returned.load(Ordering::Acquire)) {
            self.lends = false;
            self.loaded.remark("Core ML keeps inputs after a prediction, so they are copied".to_owned());
        }
        self.current = Some(results);
        Ok(())
    }

    fn output(&self, name: &str) -> Option<TensorView<'_>> {
        self.results[self.current?].outputs.iter().find(|output| output.name == name)?.view()
    }

    fn state(&self, name: &str) -> Option<TensorView<'_>> {
        autoreleasepool(|_| self.states.view(name))
    }

    fn set_state(&mut self, name: &str, value: &Tensor) -> Result<(), RuntimeError> {
        let loaded = Arc::clone(&self.loaded);
        let has = |interface: &&Interface| interface.states.iter().any(|feature| feature.name == name);
        let Some(interface) =
            loaded.model().interfaces().iter().find(has).filter(|_| self.states.contains(name))
        else {
            let problem = "the model has no such state".to_owned();
            return Err(RuntimeError::State { name: name.to_owned(), problem });
        };
        let function = loaded.function(&interface.function)?;
        autoreleasepool(|_| self.states.set(&function.lock().0, interface, name, value))
    }

    fn state_names(&self) -> Vec<String> {
        self.states.names()
    }

    /// Core ML does not tell of operations, so nobody can watch them.
    fn observe(&mut self, _: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        None
    }
}
