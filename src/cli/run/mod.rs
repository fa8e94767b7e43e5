//! `anemeter run`: one prediction of any ML program.

mod classification;
mod observe;
mod profile;
mod tensors;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::choice::choice;
use super::inputs::bytes;
use super::output::note;
use super::python::PythonArg;
use super::{Failure, Output, Result, Status};
use crate::kernels::probe;
use crate::mil::Model;
use crate::mil::op::Numerics;
use crate::render::Table;
use crate::runtime::{
    LoadOptions, LoadedModel, RuntimeError, SYNTHETIC_VALUES, Session, choose, coreai, synthetic_inputs,
};
use crate::tensor::{Tensor, TensorView};
use crate::vocabulary::{ComputeUnits, RuntimeName};
use classification::Classification;
use observe::{Overflow, take};
use profile::Profile;

type Inputs<'a> = [(&'a str, TensorView<'a>)];

/// Bytes that are read to find how fast memory is.
const PROBED_BYTES: usize = 128 << 20;

/// Run one prediction of any Core ML package, compiled model or Core AI asset, on inputs from files.
#[derive(clap::Args)]
#[command(
    after_help = "Inputs, outputs and states are .safetensors or .npz files whose tensors are named as in the model. An .npy file \
holds one array: it is the only input, or NAME=FILE.npy says which. Another ending means safetensors.\n\
An ML program in a pipeline is named by its place: PIPELINE/model0 is the first model.\n\
A Core AI asset is executed by Apple's module coreai-core in a Python of --python: the system's framework on macOS 27, and \
elsewhere Apple's CPU interpreter, whose results count and whose times do not.\n\n\
Examples:\n  anemeter run model.mlpackage --inputs in.safetensors --outputs out.safetensors\n  \
anemeter run model.mlpackage --inputs ids=ids.npy --inputs mask=mask.npy --outputs out.npz\n  \
anemeter run model.mlpackage --inputs in.safetensors --function decode --state kv.safetensors\n  \
anemeter run model.mlmodelc --inputs in.safetensors --time 50\n  \
anemeter run model.aimodel --inputs in.safetensors --outputs out.safetensors\n  \
anemeter run model.mlpackage --inputs in.safetensors --numerics fp16-exact --report-overflow"
)]
pub(super) struct Args {
    /// The .mlpackage, .mlmodelc or .aimodel to run.
    package: PathBuf,
    /// Inputs of the function: FILE, or NAME=FILE.npy; may be repeated [default: made up, the same every time].
    #[arg(long, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// File for the outputs; its ending says in which format.
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// The function to run [default: that of the package].
    #[arg(long)]
    function: Option<String>,
    /// File of the states: read if it exists, written after the prediction.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Runtime that executes the package [default: `cpu`, or `coreai` for an .aimodel].
    #[arg(long, value_parser = choice::<RuntimeName>())]
    runtime: Option<RuntimeName>,
    #[command(flatten)]
    python: PythonArg,
    /// Compute units that Core ML may use, or that Core AI should prefer.
    #[arg(long, value_name = "UNITS", default_value = "all", value_parser = choice::<ComputeUnits>())]
    compute_units: ComputeUnits,
    /// fp16 arithmetic of the `cpu` runtime: `fast` rounds where a tensor is stored, `fp16-exact` after every operation.
    #[arg(long, default_value = "fast", value_parser = choice::<Numerics>())]
    numerics: Numerics,
    /// Threads of the `cpu` runtime [default: the number of physical cores].
    #[arg(long, value_parser = crate::cli::threads::count)]
    threads: Option<u16>,
    /// The most memory that the values of a prediction may take on the `cpu` runtime, such as 512MiB or 16GiB.
    #[arg(long, value_name = "SIZE", default_value = "1536MiB", value_parser = bytes)]
    memory_limit: usize,
    /// The most operations that a prediction may carry out on the `cpu` runtime, those of loops each time.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    step_limit: u64,
    /// Predict N more times and print percentiles of the latency. States keep changing.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    time: Option<u32>,
    /// Profile another prediction after a warm-up: time and throughput by kind of operation and of the slowest operations,
    /// against the machine's peak. With a file, also write a Chrome trace.
    #[arg(long, value_name = "TRACE", num_args = 0..=1, require_equals = true)]
    profile: Option<Option<PathBuf>>,
    /// Name the first operation with an infinite or NaN fp16 output.
    #[arg(long)]
    report_overflow: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    args.python.apply();
    let usual = if coreai::is_asset(&args.package) { RuntimeName::CoreAi } else { RuntimeName::Cpu };
    let runtime = choose(Some(args.runtime.unwrap_or(usual)))?;
    let package = runtime.open(&args.package)?;
    let function = args.function.clone().unwrap_or_else(|| package.model().default_function().to_owned());
    let inputs = match &args.inputs[..] {
        [] => made_up(package.model(), &function)?,
        files => {
            let given = tensors::read_inputs(files, package.model(), &function)?;
            tensors::as_declared(package.model(), &function, given)?
        }
    };
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
    let loaded = runtime.load(&package, &options(args))?;
    loaded.loading().remarks.iter().for_each(|remark| note(format_args!("note: {remark}")));
    let mut session = loaded.clone().session();
    if let Some(path) = args.state.as_ref().filter(|path| path.exists()) {
        for (name, tensor) in tensors::read_states(path)? {
            session.set_state(&name, &tensor)?;
        }
    }
    // The prediction whose results are written.
    if args.report_overflow {
        session.observe(Some(Box::new(Overflow::default())));
    }
    session.predict(&function, &inputs)?;
    if args.report_overflow {
        output.line(take::<Overflow>(session.as_mut())?)?;
    }
    if let Some(trace) = &args.profile {
        profile(args, trace.as_deref(), &function, &inputs, loaded.clone().session().as_mut(), output)?;
    }
    let classification = Classification::of(loaded.model(), &function, session.as_ref());
    if let Some(said) = &classification {
        output.line(said.line())?;
        output.text(said.table())?;
    }
    if let Some(path) = &args.outputs {
        let metadata = classification.map(|said| said.metadata());
        tensors::write_outputs(path, loaded.model(), &function, session.as_ref(), metadata)?;
    }
    if let Some(path) = &args.state {
        tensors::write_states(path, session.as_ref())?;
    }
    if let Some(count) = args.time {
        output.text(time(count, &function, &inputs, session.as_mut())?)?;
        said_of_calls(loaded.as_ref(), output)?;
    }
    Ok(Status::Good)
}

/// Inputs at the default shapes, and a note that says so.
fn made_up(model: &Model, function: &str) -> Result<Vec<(String, Tensor)>> {
    let Some(interface) = model.interface(function) else { return Ok(Vec::new()) };
    let inputs = synthetic_inputs(interface)
        .map_err(|error| Failure::bad_input(error).with_help("give the inputs: --inputs FILE"))?;
    if !inputs.is_empty() {
        let shapes = inputs.iter().map(|(name, tensor)| format!("{name} {:?}", tensor.shape()));
        let shapes = shapes.collect::<Vec<_>>().join(", ");
        note(format_args!("note: no inputs are given, so they are made up: {shapes}; {SYNTHETIC_VALUES}"));
    }
    Ok(inputs)
}

fn options(args: &Args) -> LoadOptions {
    let threads = args.threads.map(usize::from);
    LoadOptions {
        numerics: args.numerics,
        threads,
        units: args.compute_units,
        memory: Some(args.memory_limit),
        steps: Some(args.step_limit),
        ..LoadOptions::default()
    }
}

/// A prediction that is watched, after one to warm up, in a session of its own.
fn profile(
    args: &Args,
    trace: Option<&Path>,
    function: &str,
    inputs: &Inputs<'_>,
    session: &mut dyn Session,
    output: &mut Output,
) -> Result<()> {
    let threads = args.threads.map_or_else(num_cpus::get_physical, usize::from);
    session.predict(function, inputs)?;
    let limits = probe::limits(threads, PROBED_BYTES)
        .map_err(|e| RuntimeError::Environment(format!("cannot start {threads} threads: {e}")))?;
    session.observe(Some(Box::new(Profile::new(limits))));
    session.predict(function, inputs)?;
    let profile: Profile = take(session)?;
    output.text(profile.tables())?;
    match trace {
        Some(path) => super::output::write_file(path, profile.chrome_trace().as_bytes()),
        None => Ok(()),
    }
}

fn time(count: u32, function: &str, inputs: &Inputs<'_>, session: &mut dyn Session) -> Result<Table> {
    let mut samples = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let started = Instant::now();
        session.predict(function, inputs)?;
        samples.push(started.elapsed());
    }
    samples.sort();
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
    let mut row = vec![count.to_string()];
    row.extend([0.0, 0.5, 0.9, 0.95, 0.99, 1.0].map(|share| milliseconds(at(share))));
    Ok(Table::new(&[">predictions", ">min", ">p50", ">p90", ">p95", ">p99", ">max"]).with([row]))
}

/// What lies between a call and its prediction, and whether times mean anything.
fn said_of_calls(loaded: &dyn LoadedModel, output: &mut Output) -> Result<()> {
    for call in loaded.call_overheads()? {
        let ms = milliseconds(Duration::from_secs_f64(call.microseconds / 1e6));
        output.line(format_args!("of which the call of `{}` without its prediction: {ms}", call.function))?;
    }
    match loaded.loading().engine.and_then(|engine| engine.caution()) {
        Some(caution) => output.line(caution),
        None => Ok(()),
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1e3)
}
