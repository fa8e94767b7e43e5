//! Makes a bundle ready to run, with the time of each phase.

use std::sync::Arc;
use std::time::Duration;

use super::predict::{Loaded, Predictor};
use super::protocol::{GenerateUse, ModelUse, Work};
use super::slow_down::slowed_down;
use crate::generate::{Clock, Driver, GenerateError, Generator, Text};
use anemeter_base::advice::{Advice, Remedy};
use anemeter_convert::bundle::{Bundle, BundleError};
use anemeter_measure::report::Load;
use anemeter_mil::Model;
use anemeter_mil::cost;
use anemeter_mil::graph::Graph;
use anemeter_mil::package::{Form, Package, PackageError};
use anemeter_runtime::{Compilation, LoadOptions, LoadedModel, Runtime, RuntimeError, Session, adapted};

/// A model that is ready to run.
pub(super) struct Ready {
    pub(super) model: ReadyModel,
    /// What was loaded, chunk by chunk.
    pub(super) parts: Vec<ReadyPart>,
    /// What it took; the first prediction is still to come.
    pub(super) load: Load,
    pub(super) weight_bytes_per_token: Option<u64>,
}

/// What takes requests.
pub(super) enum ReadyModel {
    /// Generates tokens, as asked for.
    Generator(Box<Generator>, GenerateUse),
    /// Predicts functions.
    Predictor(Predictor),
}

/// A loaded chunk.
pub(super) struct ReadyPart {
    pub(super) package: String,
    pub(super) loaded: Arc<dyn LoadedModel>,
    /// The functions that are going to run.
    pub(super) functions: Vec<String>,
}

impl ReadyPart {
    pub(super) fn function_names(&self) -> Vec<&str> {
        self.functions.iter().map(String::as_str).collect()
    }
}

/// Why a bundle cannot be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Its description.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A package.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// What is to execute it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// What is to generate with it.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// What it is to be given.
    #[error("{0}")]
    Inputs(String),
}

impl Advice for OpenError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            OpenError::Bundle(error) => error.remedy(),
            OpenError::Package(error) => error.remedy(),
            OpenError::Runtime(error) => error.remedy(),
            OpenError::Generate(error) => error.remedy(),
            OpenError::Inputs(_) => None,
        }
    }
}

/// Opens and loads a model for its requests.
pub(super) fn open(model: &ModelUse, clock: &Arc<dyn Clock>) -> Result<Ready, OpenError> {
    match &model.work {
        Work::Generate(wanted) => open_generator(model, wanted, clock),
        Work::Predict(wanted) => {
            let began = clock.now();
            let Loaded { predictor, parts, opened, ready } = Predictor::open(wanted, model, clock)?;
            let load = load_times([began, opened, ready], &parts);
            let model = ReadyModel::Predictor(predictor);
            Ok(Ready { model, parts, load, weight_bytes_per_token: None })
        }
    }
}

/// Opens and loads a bundle that generates tokens.
fn open_generator(
    model: &ModelUse,
    wanted: &GenerateUse,
    clock: &Arc<dyn Clock>,
) -> Result<Ready, OpenError> {
    let began = clock.now();
    let bundle = Bundle::open_to_run(&model.bundle)?;
    let manifest = bundle.manifest();
    let chunks = &manifest.chunks;
    let runtime = anemeter_runtime::choose(Some(model.runtime))?;
    let mut packages = Vec::new();
    for chunk in chunks {
        packages.push(runtime.open(&bundle.file_for(chunk, model.runtime)?)?);
    }
    let opened = clock.now();

    let options = load_options(model);
    let parts = chunks.iter().zip(&packages).map(|(chunk, package)| {
        let functions = manifest.functions_that_run(&chunk.file.name, wanted.kv, &wanted.seq_lens);
        let functions: Vec<&str> = functions.map(|function| function.name.as_str()).collect();
        let mut calls = chunk.calls(model.runtime);
        calls.retain(|(name, _)| functions.contains(name));
        load_part(runtime, chunk.file.name.clone(), package, &calls, &options)
    });
    let parts: Vec<ReadyPart> = parts.collect::<Result<_, _>>()?;
    let slow = |session: Box<dyn Session>| match model.slow_down_pct {
        Some(percent) => slowed_down(session, Arc::clone(clock), percent),
        None => session,
    };
    let sessions = parts.iter().map(|part| slow(Arc::clone(&part.loaded).session())).collect();
    let driver = Driver::new(&bundle, sessions, Some(wanted.kv), Arc::clone(clock))?;
    let ready = clock.now();

    let shortest = *driver.lengths().first().expect("a layout without lengths is refused");
    let bytes = chunks.iter().zip(&packages).map(|(chunk, package)| {
        // An asset is described without the operations that would read them.
        if package.form() == Form::Asset {
            return None;
        }
        let functions = manifest.functions_of_a_token(&chunk.file.name, driver.form(), shortest);
        weight_bytes(package.model(), &functions)
    });
    let weight_bytes_per_token = bytes.sum::<Option<u64>>();
    let text = Text::open(&bundle, None)?.map(Arc::new);
    let load = load_times([began, opened, ready], &parts);
    let generator = Box::new(Generator::new(driver, text, Arc::clone(clock)));
    let model = ReadyModel::Generator(generator, wanted.clone());
    Ok(Ready { model, parts, load, weight_bytes_per_token })
}

/// What opening and loading took.
fn load_times([began, opened, ready]: [Duration; 3], parts: &[ReadyPart]) -> Load {
    let ms = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1e3;
    let compilations: Vec<Compilation> =
        parts.iter().filter_map(|part| part.loaded.loading().compilation).collect();
    let lowerings: Vec<Duration> = parts.iter().filter_map(|part| part.loaded.loading().lowering).collect();
    let elapsed = compilations.iter().map(|done| done.elapsed).chain(lowerings.iter().copied());
    let compile_ms = elapsed.map(|elapsed| elapsed.as_secs_f64() * 1e3).sum::<f64>();
    let compiles = !compilations.is_empty();
    Load {
        open_ms: ms(began, opened),
        compile_ms: (compiles || !lowerings.is_empty()).then_some(compile_ms),
        compiled_before: compiles.then(|| compilations.iter().all(|done| done.cached)),
        load_ms: (ms(opened, ready) - compile_ms).max(0.0),
        first_prediction_ms: None,
    }
}

/// How packages are loaded.
pub(super) fn load_options(model: &ModelUse) -> LoadOptions {
    LoadOptions {
        numerics: model.numerics,
        threads: model.threads,
        units: model.units,
        load_limit: Duration::try_from_secs_f64(model.load_limit_s)
            .unwrap_or(LoadOptions::default().load_limit),
        ..LoadOptions::default()
    }
}

/// Loads a package and the functions that are going to run, each with what it is called in it.
pub(super) fn load_part(
    runtime: &dyn Runtime,
    name: String,
    package: &Package,
    calls: &[(&str, Vec<&str>)],
    options: &LoadOptions,
) -> Result<ReadyPart, RuntimeError> {
    let loaded = adapted(runtime.load(package, options)?, calls);
    let functions = calls.iter().map(|(name, _)| (*name).to_owned()).collect();
    let part = ReadyPart { package: name, loaded, functions };
    part.loaded.prepare(&part.function_names())?;
    Ok(part)
}

/// Bytes of weights that the functions of one token read, as they are stored; `None` if one is not there.
fn weight_bytes(model: &Model, functions: &[String]) -> Option<u64> {
    let of_function = |name: &String| {
        let function = model.program.function(name)?;
        let graph = Graph::new(function, model.interface(name), 0);
        Some(cost::of(&graph).total.weight_bytes)
    };
    functions.iter().map(of_function).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::{DType, Tensor};
    use anemeter_mil::{Builder, Literal, Opset, TensorType};

    #[test]
    fn a_token_reads_every_weight_but_only_a_row_of_a_table() {
        let blob = |shape: &[usize]| {
            let values = vec![0.5f32; shape.iter().product()];
            Literal::blob(&Tensor::from_slice(shape, &values).unwrap())
        };
        let mut decode = Builder::new("decode", Opset::Ios18);
        let ids = decode.input("ids", TensorType::fixed(DType::I32, &[1]));
        let table = decode.constant("table", blob(&[64, 32]));
        let weight = decode.constant("weight", blob(&[48, 32]));
        let row = decode.op("gather").arg("x", table).arg("indices", ids).arg("axis", 0).push().unwrap();
        let y = decode.op("linear").arg("x", row).arg("weight", weight).push().unwrap();
        let model = Model::multi(vec![decode.finish(&[y])]);
        assert_eq!(weight_bytes(&model, &["decode".to_owned()]), Some(4 * (48 * 32 + 32)));
        assert_eq!(weight_bytes(&model, &["decode_c512".to_owned()]), None);
    }
}
