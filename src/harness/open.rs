//! Makes a bundle ready to run, with the time of each phase.

use std::sync::Arc;
use std::time::Duration;

use super::protocol::ModelUse;
use super::slow_down::slowed_down;
use crate::generate::{Clock, Driver, GenerateError, Generator, Text};
use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::vocabulary::{FunctionRole, KvForm};
use anemeter_convert::bundle::{Bundle, BundleError, Chunk};
use anemeter_measure::report::Load;
use anemeter_mil::Model;
use anemeter_mil::cost;
use anemeter_mil::graph::Graph;
use anemeter_mil::package::{Package, PackageError};
use anemeter_runtime::{Compilation, LoadOptions, LoadedModel, Runtime, RuntimeError, Session};

/// A model that is ready to run.
pub(super) struct Ready {
    pub(super) generator: Generator,
    /// What was loaded, chunk by chunk.
    pub(super) parts: Vec<ReadyPart>,
    /// What it took; the first prediction is still to come.
    pub(super) load: Load,
    pub(super) weight_bytes_per_token: Option<u64>,
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
#[error(transparent)]
pub(super) enum OpenError {
    /// Its description.
    Bundle(#[from] BundleError),
    /// A package.
    Package(#[from] PackageError),
    /// What is to execute it.
    Runtime(#[from] RuntimeError),
    /// What is to generate with it.
    Generate(#[from] GenerateError),
}

impl Advice for OpenError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            OpenError::Bundle(error) => error.remedy(),
            OpenError::Package(error) => error.remedy(),
            OpenError::Runtime(error) => error.remedy(),
            OpenError::Generate(error) => error.remedy(),
        }
    }
}

/// Opens and loads a bundle.
pub(super) fn open(model: &ModelUse, clock: &Arc<dyn Clock>) -> Result<Ready, OpenError> {
    let began = clock.now();
    let bundle = Bundle::open(&model.bundle)?;
    let chunks = &bundle.manifest().chunks;
    let packages = chunks.iter().map(|chunk| Package::open(bundle.path(&chunk.file.name)));
    let packages: Vec<Package> = packages.collect::<Result<_, _>>()?;
    let opened = clock.now();

    let runtime = anemeter_runtime::choose(Some(model.runtime))?;
    let parts = chunks.iter().zip(&packages).map(|(chunk, package)| load(runtime, chunk, package, model));
    let parts: Vec<ReadyPart> = parts.collect::<Result<_, _>>()?;
    let slow = |session: Box<dyn Session>| match model.slow_down_pct {
        Some(percent) => slowed_down(session, Arc::clone(clock), percent),
        None => session,
    };
    let sessions = parts.iter().map(|part| slow(Arc::clone(&part.loaded).session())).collect();
    let driver = Driver::new(&bundle, sessions, Some(model.kv), Arc::clone(clock))?;
    let ready = clock.now();

    let shortest = *driver.lengths().first().expect("a layout without lengths is refused");
    let bytes = packages.iter().map(|package| weight_bytes(package.model(), driver.form(), shortest));
    let weight_bytes_per_token = bytes.sum::<Option<u64>>();
    let text = Text::open(&bundle, None)?.map(Arc::new);
    let ms = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1e3;
    let compilations: Vec<Compilation> =
        parts.iter().filter_map(|part| part.loaded.loading().compilation).collect();
    let compile_ms = compilations.iter().map(|done| done.elapsed.as_secs_f64() * 1e3).sum::<f64>();
    let compiles = !compilations.is_empty();
    let load = Load {
        open_ms: ms(began, opened),
        compile_ms: compiles.then_some(compile_ms),
        compiled_before: compiles.then(|| compilations.iter().all(|done| done.cached)),
        load_ms: (ms(opened, ready) - compile_ms).max(0.0),
        first_prediction_ms: None,
    };
    let generator = Generator::new(driver, text, Arc::clone(clock));
    Ok(Ready { generator, parts, load, weight_bytes_per_token })
}

/// Loads a package and the functions that are going to run.
fn load(
    runtime: &dyn Runtime,
    chunk: &Chunk,
    package: &Package,
    model: &ModelUse,
) -> Result<ReadyPart, RuntimeError> {
    let options = LoadOptions {
        numerics: model.numerics,
        threads: model.threads,
        units: model.units,
        load_limit: Duration::try_from_secs_f64(model.load_limit_s)
            .unwrap_or(LoadOptions::default().load_limit),
        ..LoadOptions::default()
    };
    let loaded = runtime.load(package, &options)?;
    let runs = |name: &str| {
        let role = name.parse::<FunctionRole>();
        role.is_ok_and(|role| model.seq_lens.iter().any(|&seq_len| model.kv.runs_at(role, seq_len)))
    };
    let names = chunk.functions.iter().map(|function| &function.name).filter(|name| runs(name));
    let part = ReadyPart { package: chunk.file.name.clone(), loaded, functions: names.cloned().collect() };
    part.loaded.prepare(&part.function_names())?;
    Ok(part)
}

/// Bytes of weights that a prediction of one token reads, as they are stored; `None` if no function makes one.
fn weight_bytes(model: &Model, form: KvForm, seq_len: usize) -> Option<u64> {
    let name = form.decode_role(seq_len).to_string();
    let function = model.program.function(&name)?;
    let graph = Graph::new(function, model.interface(&name), 0);
    Some(cost::of(&graph).total.weight_bytes)
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
        assert_eq!(weight_bytes(&model, KvForm::Io, 0), Some(4 * (48 * 32 + 32)));
        assert_eq!(weight_bytes(&model, KvForm::State, 512), None);
    }
}
