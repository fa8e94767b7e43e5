//! `anemeter run`: one prediction of any ML program.

mod observe;
mod profile;
mod tensors;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::table::Table;
use super::{Failure, Output, Status};
use crate::bundle::ComputeUnits;
use crate::kernels::probe;
use crate::mil::op::Numerics;
use crate::package::Package;
use crate::runtime::{self, LoadOptions, Session};
use crate::tensor::Tensor;
use observe::{Overflow, take};
use profile::Profile;

/// Bytes that are read to find how fast memory is.
const PROBED_BYTES: usize = 128 << 20;

/// Run one prediction of a package.
#[derive(clap::Args)]
#[command(
    after_help = "Inputs, outputs and states are safetensors files whose tensors are named as in the model.\n\n\
Examples:\n  anemeter run model.mlpackage --inputs in.safetensors --outputs out.safetensors\n  \
anemeter run model.mlpackage --inputs in.safetensors --function decode --state kv.safetensors\n  \
anemeter run model.mlpackage --inputs in.safetensors --time 50\n  \
anemeter run model.mlpackage --inputs in.safetensors --numerics fp16-exact --report-overflow"
)]
pub(super) struct Args {
    /// The .mlpackage to run.
    package: PathBuf,
    /// Inputs. May be left out for a function without inputs.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Where to write the outputs.
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// The function to run; the package's default if none is named.
    #[arg(long)]
    function: Option<String>,
    /// States: read if the file exists, written after the prediction.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// What executes the program.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "coreml", "coreml-rs"])]
    runtime: String,
    /// Where Core ML may place operations.
    #[arg(long, value_name = "UNITS", default_value = "all")]
    compute_units: ComputeUnits,
    /// How fp16 is computed: `fast` rounds where a tensor is stored, `fp16-exact` after every step.
    #[arg(long, default_value = "fast", value_parser = ["fast", "fp16-exact"])]
    numerics: String,
    /// Threads to use; the number of physical cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Predict this many times after the first and print percentiles of the duration. States go on changing.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    time: Option<u32>,
    /// Print time and speed per kind of operation and of the slowest operations of another prediction, after one to warm
    /// up, against what the machine reads and computes at most; with a file, write a Chrome trace too.
    #[arg(long, value_name = "TRACE", num_args = 0..=1, require_equals = true)]
    profile: Option<Option<PathBuf>>,
    /// Name the first operation whose fp16 output is infinite or not a number.
    #[arg(long)]
    report_overflow: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let package = Package::open(&args.package)?;
    let function = args.function.clone().unwrap_or_else(|| package.model().default_function().to_owned());
    let inputs = match &args.inputs {
        Some(path) => tensors::read(path)?,
        None => Vec::new(),
    };
    let runtime = runtime::choose(&args.runtime)?;
    let loaded = runtime.load(&package, &options(args))?;
    let mut session = loaded.clone().session();
    if let Some(path) = args.state.as_ref().filter(|path| path.exists()) {
        for (name, tensor) in tensors::read(path)? {
            session.set_state(&name, &tensor)?;
        }
    }
    predict(args, &function, &inputs, session.as_mut(), output)?;
    if let Some(trace) = &args.profile {
        profile(args, trace.as_deref(), &function, &inputs, loaded.clone().session().as_mut(), output)?;
    }
    if let Some(path) = &args.outputs {
        tensors::write_outputs(path, loaded.model(), &function, session.as_ref())?;
    }
    if let Some(path) = &args.state {
        tensors::write_states(path, session.as_ref())?;
    }
    if let Some(count) = args.time {
        time(count, &function, &inputs, session.as_mut(), output)?;
    }
    Ok(Status::Good)
}

fn options(args: &Args) -> LoadOptions {
    let numerics = if args.numerics == "fp16-exact" { Numerics::Fp16Exact } else { Numerics::Fast };
    let threads = args.threads.map(usize::from);
    LoadOptions { numerics, threads, units: args.compute_units, ..LoadOptions::default() }
}

fn views(inputs: &[(String, Tensor)]) -> Vec<(&str, crate::tensor::TensorView<'_>)> {
    inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect()
}

/// The prediction whose results are written.
fn predict(
    args: &Args,
    function: &str,
    inputs: &[(String, Tensor)],
    session: &mut dyn Session,
    output: &mut Output,
) -> Result<(), Failure> {
    if args.report_overflow {
        session.observe(Some(Box::new(Overflow::default())));
        session.predict(function, &views(inputs))?;
        let overflow: Overflow = take(session)?;
        output.line(overflow)?;
    } else {
        session.predict(function, &views(inputs))?;
    }
    Ok(())
}

/// A prediction that is watched, after one to warm up, in a session of its own.
fn profile(
    args: &Args,
    trace: Option<&Path>,
    function: &str,
    inputs: &[(String, Tensor)],
    session: &mut dyn Session,
    output: &mut Output,
) -> Result<(), Failure> {
    let threads = args.threads.map_or_else(num_cpus::get_physical, usize::from);
    session.predict(function, &views(inputs))?;
    session.observe(Some(Box::new(Profile::new(probe::limits(threads, PROBED_BYTES)))));
    session.predict(function, &views(inputs))?;
    let profile: Profile = take(session)?;
    output.text(profile.tables())?;
    match trace {
        Some(path) => super::output::write_file(path, profile.chrome_trace().as_bytes()),
        None => Ok(()),
    }
}

fn time(
    count: u32,
    function: &str,
    inputs: &[(String, Tensor)],
    session: &mut dyn Session,
    output: &mut Output,
) -> Result<(), Failure> {
    let views = views(inputs);
    let mut samples = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let started = Instant::now();
        session.predict(function, &views)?;
        samples.push(started.elapsed());
    }
    samples.sort();
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
    let mut table = Table::new(&[">predictions", ">min", ">p50", ">p90", ">p95", ">p99", ">max"]);
    let mut row = vec![count.to_string()];
    row.extend([0.0, 0.5, 0.9, 0.95, 0.99, 1.0].map(|share| milliseconds(at(share))));
    table.row(row);
    output.text(table)
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1e3)
}
