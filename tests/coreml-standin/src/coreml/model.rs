//! `MLModel`: compiling, loading, predicting.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anemeter::kernels::convert;
use anemeter::mil::FeatureType;
use anemeter::runtime::{RuntimeError, Session};
use anemeter::tensor::{DType, TensorView};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject, ProtocolObject};
use objc2::{ClassType, DefinedClass, Message, define_class, msg_send};
use objc2_core_ml::{
    MLFeatureProvider, MLModel, MLModelConfiguration, MLModelDescription, MLMultiArray, MLPredictionOptions,
    MLState,
};
use objc2_foundation::{NSError, NSString, NSURL};

use super::array::{self, Array, Spacing};
use super::handler::{Handler, complete};
use super::program::Function;
use super::state::{self, State};
use super::{code, compile, configuration, description, features, options};
use crate::fault::{self, Fault};
use crate::foundation::error::Failure;
use crate::instance::{behind, make_public};
use crate::witness;

pub(super) type Features = ProtocolObject<dyn MLFeatureProvider>;

struct Loaded {
    function: Function,
    configuration: Retained<MLModelConfiguration>,
    session: Mutex<Box<dyn Session>>,
    /// Inputs that are not let go of, where that fault is on.
    kept: Mutex<Vec<Retained<AnyObject>>>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModel"]
    #[ivars = Loaded]
    struct Model;

    impl Model {
        #[unsafe(method(compileModelAtURL:completionHandler:))]
        fn compile(url: &NSURL, handler: &Handler<NSURL>) {
            let package = path(url);
            complete(handler, move || {
                let compiled = compile::compile(&package)?;
                Ok(compiled.and_then(NSURL::from_directory_path))
            });
        }

        #[unsafe(method_id(modelWithContentsOfURL:configuration:error:))]
        fn load(
            url: &NSURL,
            configuration: &MLModelConfiguration,
            error: *mut *mut NSError,
        ) -> Option<Retained<MLModel>> {
            open(&path(url), copy(configuration)).unwrap_or_else(|failure| failure.report(error))
        }

        #[unsafe(method(loadContentsOfURL:configuration:completionHandler:))]
        fn load_with_handler(url: &NSURL, configuration: &MLModelConfiguration, handler: &Handler<MLModel>) {
            let (path, configuration) = (path(url), copy(configuration));
            complete(handler, move || open(&path, configuration));
        }

        #[unsafe(method_id(modelDescription))]
        fn describe(&self) -> Retained<MLModelDescription> {
            description::of(&self.ivars().function.interface)
        }

        #[unsafe(method_id(configuration))]
        fn configuration(&self) -> Retained<MLModelConfiguration> {
            self.ivars().configuration.clone()
        }

        #[unsafe(method_id(newState))]
        fn new_state(&self) -> Option<Retained<MLState>> {
            (!fault::is_on(Fault::NoState)).then(|| state::new(&self.ivars().function))
        }

        #[unsafe(method_id(predictionFromFeatures:error:))]
        fn predict(&self, features: &Features, error: *mut *mut NSError) -> Option<Retained<Features>> {
            self.answer(features, None, None, error)
        }

        #[unsafe(method_id(predictionFromFeatures:options:error:))]
        fn predict_with_options(
            &self,
            features: &Features,
            options: &MLPredictionOptions,
            error: *mut *mut NSError,
        ) -> Option<Retained<Features>> {
            self.answer(features, None, Some(options), error)
        }

        #[unsafe(method_id(predictionFromFeatures:usingState:error:))]
        fn predict_with_state(
            &self,
            features: &Features,
            state: &MLState,
            error: *mut *mut NSError,
        ) -> Option<Retained<Features>> {
            self.answer(features, Some(state), None, error)
        }

        #[unsafe(method_id(predictionFromFeatures:usingState:options:error:))]
        fn predict_with_state_and_options(
            &self,
            features: &Features,
            state: &MLState,
            options: &MLPredictionOptions,
            error: *mut *mut NSError,
        ) -> Option<Retained<Features>> {
            self.answer(features, Some(state), Some(options), error)
        }
    }
);

pub(super) fn path(url: &NSURL) -> PathBuf {
    url.to_file_path().expect("URLs here are of files")
}

fn copy(configuration: &MLModelConfiguration) -> Retained<MLModelConfiguration> {
    // SAFETY: configurations can be copied.
    unsafe { msg_send![configuration, copy] }
}

/// Loads a function of a compiled model.
fn open(
    path: &std::path::Path,
    configuration: Retained<MLModelConfiguration>,
) -> Result<Option<Retained<MLModel>>, Failure> {
    let asked = configuration::asked(&configuration);
    witness::asked(asked.clone());
    fault::hang();
    if fault::is_on(Fault::LoadGivesNothing) {
        return Ok(None);
    }
    if fault::is_on(Fault::LoadFails) {
        return Err(Failure::new(
            code::GENERIC,
            "Failed to build the model execution plan using a model architecture file.",
        )
        .caused_by(
            "com.apple.appleneuralengine.compiler",
            -14,
            "ANECCompile() FAILED (error code: -14)",
        ));
    }
    if asked.function.is_some() && fault::is_on(Fault::FunctionRefused) {
        let text = "functionName must be nil unless the model has several functions.";
        return Err(Failure::new(code::GENERIC, text));
    }
    let function = Function::open(path, asked.function.as_deref())?;
    let session = Mutex::new(function.session());
    let loaded = Loaded { function, configuration, session, kept: Mutex::default() };
    Ok(Some(make_public::<Model, _>(loaded)))
}

/// A prediction's outputs, or why there are none.
type Answer = Result<Option<Retained<Features>>, Failure>;

impl Model {
    fn answer(
        &self,
        features: &Features,
        state: Option<&MLState>,
        options: Option<&MLPredictionOptions>,
        error: *mut *mut NSError,
    ) -> Option<Retained<Features>> {
        self.run(features, state, options).unwrap_or_else(|failure| failure.report(error))
    }

    fn run(
        &self,
        features: &Features,
        state: Option<&MLState>,
        options: Option<&MLPredictionOptions>,
    ) -> Answer {
        let fails = fault::prediction_fails();
        if fault::is_on(Fault::PredictionGivesNothing) {
            return Ok(None);
        }
        if fails {
            let text = "Unable to compute the prediction using ML Program. It can be an invalid input data or \
                        broken/unsupported model.";
            return Err(Failure::new(code::GENERIC, text).caused_by(
                "com.apple.appleneuralengine",
                8,
                "processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:: 0x1d: Program Inference error",
            ));
        }
        let arrays = self.inputs(features)?;
        let elements: Vec<Cow<'_, [u8]>> =
            arrays.iter().map(|(_, array)| behind::<Array>(array).elements()).collect();
        let mut inputs = Vec::new();
        for ((name, array), elements) in arrays.iter().zip(&elements) {
            let array: &Array = behind(array);
            let view = TensorView::new(array.dtype(), array.shape(), elements);
            inputs.push((*name, view.map_err(|error| invalid(format!("{name}: {error}")))?));
        }
        self.compute(&inputs, state, options)
    }

    /// The arrays of the inputs that are given; what is missing is found when they are used.
    fn inputs(&self, features: &Features) -> Result<Vec<(&str, Retained<MLMultiArray>)>, Failure> {
        let mut arrays = Vec::new();
        for feature in &self.ivars().function.interface.inputs {
            // SAFETY: the provider answers for any name.
            let Some(value) = (unsafe { features.featureValueForName(&NSString::from_str(&feature.name)) })
            else {
                if feature.optional {
                    continue;
                }
                return Err(invalid(format!("Feature {} is required but not specified.", feature.name)));
            };
            // SAFETY: a plain getter.
            let Some(array) = (unsafe { value.multiArrayValue() }) else {
                return Err(invalid(format!("Feature {} is not a multi array.", feature.name)));
            };
            if fault::is_on(Fault::InputsKept) {
                let kept: Retained<AnyObject> = array.retain().into();
                self.ivars().kept.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
            }
            arrays.push((feature.name.as_str(), array));
        }
        Ok(arrays)
    }

    fn compute(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        state: Option<&MLState>,
        options: Option<&MLPredictionOptions>,
    ) -> Answer {
        let Loaded { function, session, .. } = self.ivars();
        let name = &function.interface.function;
        let done = match state.map(State::of) {
            None if !function.interface.states.is_empty() => {
                return Err(invalid("The model is stateful; a prediction needs a state.".to_owned()));
            }
            None => {
                let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
                session.predict(name, inputs).map(|()| self.outputs(&**session, options))
            }
            Some(state) if state.belongs_to(function) => {
                state.predict(name, inputs, |session| self.outputs(session, options))
            }
            Some(_) => return Err(invalid("The state was made by another model.".to_owned())),
        };
        done.unwrap_or_else(|error| {
            Err(match error {
                RuntimeError::Inputs { .. } => invalid(error.to_string()),
                other => Failure::new(code::GENERIC, other.to_string()),
            })
        })
    }

    fn outputs(&self, session: &dyn Session, options: Option<&MLPredictionOptions>) -> Answer {
        let outputs = &self.ivars().function.interface.outputs;
        let given = if fault::is_on(Fault::OutputMissing) { outputs.len() - 1 } else { outputs.len() };
        let mut values = Vec::new();
        for feature in &outputs[..given] {
            if let Some(value) = features::of_classifier(&feature.ty) {
                values.push((feature.name.clone(), value));
                continue;
            }
            let tensor = session.output(&feature.name);
            let array = tensor.and_then(|tensor| output(&feature.name, &feature.ty, &tensor, options));
            let array = array.ok_or_else(|| {
                Failure::new(code::GENERIC, format!("The output {} cannot be made an array.", feature.name))
            })?;
            values.push((feature.name.clone(), features::of_array(&array)));
        }
        Ok(Some(features::provider(values)))
    }
}

/// An output: in the array that was proposed for it if that fits, else in a new one with gaps.
fn output(
    name: &str,
    ty: &FeatureType,
    tensor: &TensorView<'_>,
    options: Option<&MLPredictionOptions>,
) -> Option<Retained<MLMultiArray>> {
    let FeatureType::Array(_) = ty else { return None };
    if fault::is_on(Fault::OutputOfOtherType) {
        let mut numbers = vec![0.0; tensor.len()];
        convert::to_f32(tensor, 0..tensor.len(), &mut numbers);
        let other = convert::from_f32(DType::F32, tensor.shape(), &numbers).ok()?;
        return array::holding(&other.view(), Spacing::Rows);
    }
    if let Some(backing) = options::backing(options, name)
        && !fault::is_on(Fault::BackingsIgnored)
        && behind::<Array>(&backing).take(tensor)
    {
        return Some(backing);
    }
    let everywhere = fault::is_on(Fault::PaddedEverywhere);
    array::holding(tensor, if everywhere { Spacing::Everywhere } else { Spacing::Rows })
}

fn invalid(text: String) -> Failure {
    Failure::new(code::FEATURE_TYPE, text)
}

pub(super) fn register() {
    Model::class();
}
