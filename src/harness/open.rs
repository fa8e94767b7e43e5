//! Makes a bundle ready to run, with the time of each phase.

use std::sync::Arc;
use std::time::Duration;

use super::protocol::ModelUse;
use super::slow_down::SlowedDown;
use crate::bundle::{Bundle, Chunk, KvForm};
use crate::cost;
use crate::generate::{Clock, Driver, Generator, Text};
use crate::mil::Model;
use crate::package::Package;
use crate::report::Load;
use crate::runtime::{self, Compilation, LoadOptions, Loaded, Runtime, RuntimeError, Session};
use crate::view::Graph;

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
    pub(super) loaded: Arc<dyn Loaded>,
    /// The functions that are going to run.
    pub(super) functions: Vec<String>,
}

impl ReadyPart {
    pub(super) fn function_names(&self) -> Vec<&str> {
        self.functions.iter().map(String::as_str).collect()
    }
}

/// Opens and loads a bundle.
pub(super) fn open(model: &ModelUse, clock: &Arc<dyn Clock>) -> Result<Ready, String> {
    let began = clock.now();
    let bundle = Bundle::open(&model.bundle).map_err(|e| e.to_string())?;
    let chunks = &bundle.manifest().chunks;
    let packages = chunks.iter().map(|chunk| Package::open(bundle.path(&chunk.file.name)));
    let packages: Vec<Package> = packages.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let opened = clock.now();

    let runtime = runtime::choose(&model.runtime).map_err(|e| e.to_string())?;
    let parts = chunks.iter().zip(&packages).map(|(chunk, package)| load(runtime, chunk, package, model));
    let parts: Vec<ReadyPart> = parts.collect::<Result<_, _>>().map_err(|e| told(&e))?;
    let slow = |session: Box<dyn Session>| match model.slow_down_pct {
        Some(percent) => Box::new(SlowedDown::new(session, Arc::clone(clock), percent)) as Box<dyn Session>,
        None => session,
    };
    let sessions = parts.iter().map(|part| slow(Arc::clone(&part.loaded).session())).collect();
    let driver =
        Driver::new(&bundle, sessions, Some(model.kv), Arc::clone(clock)).map_err(|e| e.to_string())?;
    let ready = clock.now();

    let shortest = driver.lengths().first().copied().unwrap_or(0);
    let bytes = packages.iter().map(|package| weight_bytes(package.model(), driver.form(), shortest));
    let weight_bytes_per_token = bytes.sum::<Option<u64>>();
    let text = Text::open(&bundle, None).map_err(|e| e.to_string())?.map(Arc::new);
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
        numerics: model.numerics.into(),
        threads: model.threads,
        units: model.units,
        load_limit: Duration::try_from_secs_f64(model.load_limit_s)
            .unwrap_or(LoadOptions::default().load_limit),
        ..LoadOptions::default()
    };
    let loaded = runtime.load(package, &options)?;
    let runs = |name: &str| model.shapes.iter().any(|&shape| model.kv.runs_at(name, shape));
    let names = chunk.functions.iter().map(|function| &function.name).filter(|name| runs(name));
    let part = ReadyPart { package: chunk.file.name.clone(), loaded, functions: names.cloned().collect() };
    part.loaded.prepare(&part.function_names())?;
    Ok(part)
}

/// A failure with what to do about it, since a worker has one line for both.
fn told(error: &RuntimeError) -> String {
    match error.help() {
        Some(help) => format!("{error}; help: {help}"),
        None => error.to_string(),
    }
}

/// Bytes of weights that a prediction of one token reads, as they are stored; `None` if no function makes one.
fn weight_bytes(model: &Model, form: KvForm, shape: usize) -> Option<u64> {
    let name = match form {
        KvForm::Io => "decode".to_owned(),
        KvForm::State => format!("decode_c{shape}"),
        KvForm::None => "main".to_owned(),
    };
    let function = model.program.function(&name)?;
    let graph = Graph::new(function, model.interface(&name), 0);
    Some(cost::of(&graph).total.weight_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mil::{Builder, Literal, Opset, TensorType};
    use crate::tensor::{DType, Tensor};

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
